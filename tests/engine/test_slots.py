"""What a slot keeps of an ended sequence, who may use it, and who is admitted when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.engine import Engine, EngineConfig, EventType, FinishReason, PromptTooLong, SamplingParams, Sequence
from generation.engine.groups import length_groups
from generation.engine.slots import common_prefix
from tests.engine import tiny

FIVE = SamplingParams(temperature=0, max_new_tokens=5)
LONG = SamplingParams(temperature=0, max_new_tokens=100)
HISTORY = list(range(20, 80))


def build(slots: int = 2, **config: int) -> Engine:
    return Engine(tiny.model("llama", ()), tiny.tokenizer(), EngineConfig(slots=slots, context=256, **config))


def drain(engine: Engine) -> None:
    while engine.num_remaining_jobs():
        engine.iterate()


def cached(sequence: Sequence) -> int:
    end = sequence.wait(0)
    assert end is not None and end.usage is not None
    return end.usage.cached_tokens


def run(engine: Engine, prompt: list[int], params: SamplingParams = FIVE) -> Sequence:
    sequence = engine.submit(prompt, params)
    drain(engine)
    return sequence


def test_it_computes_of_a_second_turn_only_what_is_new() -> None:
    engine = build()
    first = run(engine, HISTORY)
    second = run(engine, [*first.ids, 90, 91])
    assert (cached(first), cached(second)) == (0, len(first.ids) - 1)  # the last sampled id was never computed


def test_it_computes_at_least_the_last_id_of_a_prompt() -> None:
    engine = build()
    assert [cached(run(engine, HISTORY)) for _ in range(2)] == [0, len(HISTORY) - 1]


def test_it_reports_a_prompts_progress_from_what_was_cached() -> None:
    engine = build(prefill_chunk=16)
    run(engine, HISTORY)
    engine.submit(HISTORY + list(range(100, 140)), FIVE)
    events = [event for _ in range(4) for event in engine.iterate()]
    assert [event.done for event in events if event.type is EventType.PREFILL] == [76, 92, 100]


def test_it_copies_what_a_running_sequence_has_computed() -> None:
    engine = build()
    running = engine.submit(HISTORY, LONG)
    engine.iterate()
    joining = engine.submit([*HISTORY[:50], 200], FIVE)
    drain(engine)
    assert cached(joining) == 50
    assert running.generated_ids == tiny.generate("llama", HISTORY, 100, ())
    assert joining.generated_ids == tiny.generate("llama", [*HISTORY[:50], 200], 5, ())


@pytest.mark.parametrize("prefill_chunk", [16, 64, 0])
def test_it_computes_once_what_prompts_that_come_together_share(prefill_chunk: int) -> None:
    engine = build(slots=4, prefill_chunk=prefill_chunk)
    sequences = [engine.submit([*HISTORY, 100 + number, 7], FIVE) for number in range(4)]
    drain(engine)
    assert sorted(map(cached, sequences)) == [0, 60, 60, 60]


def test_it_lets_the_least_recently_used_prefix_go_first() -> None:
    engine = build()
    run(engine, [10] * 20)
    run(engine, [11] * 20)
    run(engine, [10] * 20)  # used again
    run(engine, [12] * 20)  # takes the slot of the elevens
    assert [cached(run(engine, [number] * 20)) for number in (10, 12, 11)] == [19, 19, 0]


def test_it_copies_a_short_common_beginning_rather_than_lose_a_long_history() -> None:
    engine = build()
    first = run(engine, HISTORY)
    assert cached(run(engine, [*HISTORY[:10], *range(200, 230)])) == 10
    assert cached(run(engine, [*first.ids, 90])) == len(first.ids) - 1


def test_it_keeps_what_a_cancelled_sequence_computed() -> None:
    engine = build(prefill_chunk=16)
    sequence = engine.submit(HISTORY, FIVE)
    engine.iterate()
    engine.iterate()
    sequence.cancel()
    engine.iterate()
    assert cached(run(engine, HISTORY)) == 32


def test_it_keeps_nothing_of_sequences_that_failed() -> None:
    model, engine = tiny.model("llama", ()), build(slots=3)
    other = run(engine, [10] * 20)
    failing = engine.submit(HISTORY, LONG)
    for _ in range(4):
        engine.iterate()
    handle = model.register_forward_hook(lambda *_: 1 / 0)
    try:
        engine.iterate()
    finally:
        handle.remove()
    end = failing.wait(0)
    assert end is not None and end.reason is FinishReason.ERROR
    again = run(engine, HISTORY)
    assert cached(again) == 0 and again.generated_ids == tiny.generate("llama", HISTORY, 5, ())
    assert cached(run(engine, other.ids)) == len(other.ids) - 1  # no part of the step that failed


def test_it_reads_nothing_of_what_a_longer_sequence_left_behind_it() -> None:
    """Rows of a group are read to the longest one's length, and a masked NaN times 0 is NaN."""
    model, engine = tiny.model("llama", ()), build()
    handle = model.model.embed_tokens.register_forward_hook(lambda *args: args[2] * float("nan"))
    try:
        spoiled = run(engine, HISTORY)
    finally:
        handle.remove()
    end = spoiled.wait(0)
    assert end is not None and isinstance(end.error, ArithmeticError)
    long, short = engine.submit(list(range(100, 150)), FIVE), engine.submit([30, 50, 70], FIVE)  # in its slot
    drain(engine)
    assert short.generated_ids == tiny.generate("llama", [30, 50, 70], 5, ())
    assert long.generated_ids == tiny.generate("llama", list(range(100, 150)), 5, ())


def test_it_admits_no_more_than_its_tokens_allow() -> None:
    engine = build(slots=4, cache_tokens=100)
    for number in range(4):
        engine.submit([30 + number] * 20, SamplingParams(temperature=0, max_new_tokens=20), identifier=number)
    most = 0
    while engine.num_remaining_jobs():
        engine.iterate()
        most = max(most, engine.stats().running)
    assert most == 2


def test_it_drops_kept_prefixes_when_their_tokens_are_needed() -> None:
    engine = build(slots=4, cache_tokens=100)
    run(engine, [10] * 20)
    run(engine, [11] * 20)
    run(engine, [12] * 50)  # 24 + 24 kept, 55 to come: the oldest goes
    assert [cached(run(engine, [number] * 20)) for number in (11, 10)] == [19, 0]


def test_it_lets_few_pass_one_that_waits_for_tokens() -> None:
    """Small ones that always fit must not keep a large one waiting for ever."""
    engine = build(slots=4, cache_tokens=100)
    engine.submit([30] * 40, SamplingParams(temperature=0, max_new_tokens=20), identifier="first")
    engine.iterate()
    engine.submit([31] * 80, FIVE, identifier="large")
    for number in range(40):
        engine.submit([40 + number] * 3, FIVE, identifier=number)
    started: list[object] = []
    while engine.num_remaining_jobs():
        started += [event.identifier for event in engine.iterate() if event.type is EventType.STARTED]
    assert started == [*range(8), "large", *range(8, 40)]


def test_it_refuses_a_prompt_that_could_never_be_admitted() -> None:
    engine = build(cache_tokens=100)
    with pytest.raises(PromptTooLong, match=r"100 tokens.*takes 99"):
        engine.submit([30] * 100, FIVE)
    run(engine, [30] * 99, LONG)
    for wrong in (0, 1, -5):
        with pytest.raises(ValueError, match="cache_tokens"):
            EngineConfig(cache_tokens=wrong)


def test_it_parts_rows_by_length_and_by_neighbourhood() -> None:
    assert length_groups([0, 1, 2, 3], [540, 560, 530, 541]) == [range(0, 4)]
    assert length_groups([0, 1, 2, 3, 4], [64, 64, 768, 64, 64]) == [range(0, 2), range(2, 3), range(3, 5)]
    assert length_groups([0, 1, 3], [64, 64, 64]) == [range(0, 2), range(2, 3)]
    assert length_groups([], []) == []


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2000)), max_size=12))
def test_it_reads_each_row_in_one_group_of_adjoining_slots(rows: list[tuple[int, int]]) -> None:
    slots = [sum(gap for gap, _ in rows[: index + 1]) for index in range(len(rows))]
    groups = length_groups(slots, [length for _, length in rows])
    assert [row for group in groups for row in group] == list(range(len(rows)))
    for group in groups:
        assert slots[group[-1]] - slots[group[0]] == len(group) - 1


@given(st.lists(st.integers(0, 1), max_size=20), st.lists(st.integers(0, 1), max_size=20), st.integers(0, 25))
def test_it_finds_what_two_prompts_have_in_common(first: list[int], second: list[int], limit: int) -> None:
    shared = 0
    while shared < min(len(first), len(second), limit) and first[shared] == second[shared]:
        shared += 1
    assert common_prefix(first, second, limit) == shared
