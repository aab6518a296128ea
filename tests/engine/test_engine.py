"""Submitting, cancelling, failing and closing; from one thread, many threads and event loops."""

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from generation.engine import (
    DeviceLost,
    Engine,
    EngineClosed,
    EngineConfig,
    Event,
    EventType,
    FinishReason,
    PromptError,
    PromptTooLong,
    SamplingParams,
)
from generation.engine.mock import MockCodec, MockRunner
from generation.engine.scheduler import Plan
from tests.engine import tiny

LONG = SamplingParams(temperature=0, max_new_tokens=400)
SHORT = SamplingParams(temperature=0, max_new_tokens=5)
PROMPT = [30, 50, 70]


def build(slots: int = 2, **config: int) -> Engine:
    # No end among the model's ids: these replies end only as the tests say.
    return Engine(tiny.model("llama", ()), tiny.tokenizer(), EngineConfig(slots=slots, context=512, **config))


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = build()
    yield made
    made.close()


def ids_of(sequence: Any) -> list[int]:
    return [token for event in sequence for token in event.ids]


def test_it_runs_as_many_at_once_as_it_has_slots_and_admits_in_order(engine: Engine) -> None:
    for number in range(4):
        engine.submit([30 + number], SamplingParams(temperature=0, max_new_tokens=3 + number), identifier=number)
    started: list[object] = []
    while engine.num_remaining_jobs():
        started += [event.identifier for event in engine.iterate() if event.type is EventType.STARTED]
        assert engine.stats().running <= 2
    assert started == [0, 1, 2, 3]


def test_it_gives_every_running_sequence_one_token_in_each_step(engine: Engine) -> None:
    for number in range(2):
        engine.submit(PROMPT, SamplingParams(temperature=0, max_new_tokens=6), identifier=number)
    steps = [engine.iterate() for _ in range(6)]
    for events in steps:
        assert [event.identifier for event in events if event.type is EventType.TOKEN] == [0, 1]


def test_it_says_started_then_tokens_then_the_end_with_its_counts(engine: Engine) -> None:
    events = list(engine.submit(PROMPT, SHORT, identifier=("job", 1)))
    assert [event.type for event in events] == [EventType.STARTED, *[EventType.TOKEN] * 5, EventType.END]
    end = events[-1]
    assert end.identifier == ("job", 1) and end.reason is FinishReason.LENGTH
    assert end.usage is not None and (end.usage.prompt_tokens, end.usage.completion_tokens) == (3, 5)
    assert end.timings is not None
    assert 0 <= end.timings.queue <= end.timings.first_token <= end.timings.total


def test_it_cancels_within_two_steps_wherever_the_sequence_is() -> None:
    """After one cancel in the middle no reply ever finished (theroyallab/tabbyAPI#428)."""
    engine = build(prefill_chunk=16)
    rng = random.Random(1)
    reference = ids_of_steps(engine, SHORT)
    for _ in range(40):
        running = [engine.submit([rng.randrange(4, 300)] * rng.randint(1, 100), LONG) for _ in range(3)]
        for _ in range(rng.randint(0, 12)):
            engine.iterate()
        for sequence in running:
            sequence.cancel()
        events = engine.iterate() + engine.iterate()
        assert sum(event.reason is FinishReason.CANCELLED for event in events) == 3
        assert engine.num_remaining_jobs() == 0
        assert ids_of_steps(engine, SHORT) == reference


def ids_of_steps(engine: Engine, params: SamplingParams) -> list[int]:
    engine.submit(PROMPT, params)
    ids: list[int] = []
    while engine.num_remaining_jobs():
        ids += [token for event in engine.iterate() for token in event.ids]
    return ids


def test_it_keeps_the_text_of_a_cancelled_sequence_whole(engine: Engine) -> None:
    sequence = engine.submit(PROMPT, LONG)
    ids: list[int] = []
    for event in sequence:
        ids += event.ids
        if len(ids) == 10:
            sequence.cancel()
    end = sequence.wait()
    assert end is not None and end.reason is FinishReason.CANCELLED
    assert end.usage is not None and end.usage.completion_tokens == len(ids) < 400


def test_it_goes_on_after_a_step_that_failed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the generating thread left every reader hanging (huggingface/transformers#22576)."""
    model = tiny.model("llama", ())
    broken = threading.Event()
    handle = model.register_forward_pre_hook(lambda *_: fail() if broken.is_set() else None)

    def fail() -> None:
        raise ArithmeticError("on purpose")

    try:
        first = [engine.submit(PROMPT, LONG) for _ in range(2)]
        waiting = engine.submit(PROMPT, SHORT)
        events = iter(first[0])
        for _ in range(6):
            next(events)
        broken.set()
        for sequence in first:
            end = sequence.wait(10)
            assert end is not None and end.reason is FinishReason.ERROR
            assert isinstance(end.error, ArithmeticError)
        broken.clear()
        end = waiting.wait(10)
        if end is not None and end.reason is FinishReason.ERROR:  # it was admitted before the repair
            waiting = engine.submit(PROMPT, SHORT)
        assert len(ids_of(waiting)) == 5
    finally:
        handle.remove()


def test_it_closes_when_its_device_computes_nothing_any_more() -> None:
    """Each later step would fail too: nobody may be given to such an engine (vllm-project/vllm#5822)."""

    class LostRunner(MockRunner):
        def run(self, plan: Plan) -> list[int | Exception]:
            for segment in plan.sampling:
                if segment.sequence.num_generated == 1:
                    stopped.cancel()  # its end and the loss then come in one step
                if segment.sequence.num_generated == 2:
                    self.check()
            return super().run(plan)

        def check(self) -> None:
            raise RuntimeError("device-side assert triggered")

    told: list[Exception] = []
    engine = Engine(LostRunner(64, rate=float("inf")), MockCodec(), EngineConfig(slots=1), on_lost=told.append)
    ids = engine.encode([{"role": "user", "content": "some words"}])
    running, waiting, stopped = (engine.submit(ids, SamplingParams(max_new_tokens=9)) for _ in range(3))
    engine.start()
    end = stopped.wait(10)
    assert end is not None and end.reason is FinishReason.CANCELLED
    ends = [list(sequence)[-1] for sequence in (running, waiting)]
    assert [end.reason for end in ends] == [FinishReason.ERROR] * 2
    assert len(told) == 1 and {end.error for end in ends} == set(told)
    assert isinstance(told[0], DeviceLost) and "device-side assert" in str(told[0])
    with pytest.raises(EngineClosed):
        engine.submit(ids)


def test_it_fails_only_the_sequence_whose_logits_are_not_finite(engine: Engine) -> None:
    model = tiny.model("llama", ())
    with_nan = 333

    def spoil(_module: object, _inputs: object, output: Any) -> Any:
        return output.masked_fill((spoiled[0] == with_nan)[..., None], float("nan"))

    spoiled: list[Any] = [None]
    watch = model.model.embed_tokens.register_forward_pre_hook(lambda _, args: spoiled.__setitem__(0, args[0]))
    handle = model.model.embed_tokens.register_forward_hook(spoil)
    try:
        bad = engine.submit([30, with_nan], SHORT)
        good = engine.submit(PROMPT, SHORT)
        after = engine.submit(PROMPT, SHORT)  # takes the slot that holds NaN
        assert ids_of(good) == ids_of(after) == tiny.generate("llama", PROMPT, 5, ())
        end = bad.wait(10)
        assert end is not None and isinstance(end.error, ArithmeticError)
    finally:
        watch.remove()
        handle.remove()


def test_it_refuses_what_cannot_be_a_prompt(engine: Engine) -> None:
    """An empty prompt stopped all later requests (vllm-project/vllm#7283)."""
    with pytest.raises(PromptError, match="empty"):
        engine.submit([], SHORT)
    with pytest.raises(PromptError, match="vocabulary"):
        engine.submit([tiny.VOCAB_SIZE], SHORT)
    assert len(ids_of(engine.submit(PROMPT, SHORT))) == 5


def test_it_refuses_a_prompt_without_room_for_a_reply_and_says_the_figures(engine: Engine) -> None:
    """Too long a prompt hung, crashed or gave an empty success (vllm-project/vllm#765)."""
    for length in (512, 513, 5120):
        with pytest.raises(PromptTooLong, match=rf"{length:,} tokens.*511"):
            engine.submit([30] * length, SHORT)
    assert len(ids_of(engine.submit([30] * 511, SHORT))) == 1


def test_it_only_ends_a_reply_that_already_has_its_end() -> None:
    engine = build()
    for params, generated, reason in [
        (SHORT, [40, 41, 42, 43, 44], FinishReason.LENGTH),
        (SHORT, [40, tiny.EOS], FinishReason.STOP),
        (SamplingParams(stop=("ab",)), tiny.byte_ids("xab"), FinishReason.STOP_STRING),
    ]:
        engine.submit(PROMPT, params, generated_ids=generated)
        (event,) = engine.iterate()
        assert (event.type, event.reason) == (EventType.END, reason)
        assert event.usage is not None and event.usage.completion_tokens == len(generated)


def test_it_rebuilds_held_back_text_from_the_ids() -> None:
    text = "one\nUser: two"
    ids = tiny.byte_ids(text)
    for cut in range(len(ids)):
        sequence = build().submit(PROMPT, SamplingParams(stop=("\nUser:",)), generated_ids=ids[:cut])
        texts = [sequence.accept(token_id) for token_id in ids[cut : ids.index(tiny.byte_ids(":")[0]) + 1]]
        before = "one"[:cut]
        assert before + "".join(text for text, _ in texts) == "one" or cut > 9


def test_it_ends_every_iterator_when_it_closes() -> None:
    engine = build().start()
    sequences = [engine.submit(PROMPT, LONG) for _ in range(4)]
    engine.close()
    for sequence in sequences:
        last = list(sequence)[-1]
        assert last.type is EventType.END
        assert last.reason is FinishReason.ERROR and isinstance(last.error, EngineClosed)
    with pytest.raises(EngineClosed):
        engine.submit(PROMPT, SHORT)
    with pytest.raises(EngineClosed):
        engine.iterate()
    engine.close()


def test_it_does_not_iterate_while_its_thread_runs(engine: Engine) -> None:
    engine.start()
    with pytest.raises(RuntimeError, match="thread"):
        engine.iterate()


def test_it_answers_after_idling_before_the_first_prompt(engine: Engine) -> None:
    """The batching thread died if it was started before any request existed (huggingface/transformers#48303)."""
    engine.start()
    assert engine.stats().idle and engine.stats().alive
    assert len(ids_of(engine.submit(PROMPT, SHORT))) == 5


def test_it_gives_a_steps_events_of_all_sequences_as_one_list() -> None:
    steps: list[list[Event]] = []
    engine = Engine(tiny.model("llama", ()), tiny.tokenizer(), EngineConfig(slots=2, context=64), steps.append)
    sequences = [engine.submit(PROMPT, SHORT, identifier=number) for number in range(2)]
    engine.start()
    for sequence in sequences:
        end = sequence.wait(10)
        assert end is not None and end.reason is FinishReason.LENGTH
    engine.close()
    assert sorted(event.identifier for event in steps[-1] if event.type is EventType.END) == [0, 1]
    with pytest.raises(RuntimeError, match="on_events"):
        list(sequences[0])


def test_it_streams_to_event_loops_without_blocking_them(engine: Engine) -> None:
    """A finished request's iterator never ended beside other streams (huggingface/transformers#42943)."""

    async def read(sequence: Any) -> list[int]:
        return [token async for event in sequence for token in event.ids]

    async def main() -> list[list[int]]:
        stalled = engine.submit(PROMPT, SHORT)  # nobody reads it
        replies = await asyncio.gather(*[read(engine.submit(PROMPT, SHORT)) for _ in range(3)])
        return [*replies, await read(stalled)]

    assert asyncio.run(main()) == [tiny.generate("llama", PROMPT, 5, ())] * 4


def test_it_runs_beside_another_engine_in_one_process() -> None:
    engines = {
        family: Engine(tiny.model(family), tiny.tokenizer(), EngineConfig(slots=2, context=128))
        for family in tiny.FAMILIES[:3]
    }
    params = SamplingParams(temperature=0, max_new_tokens=40)
    running = {family: [engine.submit(PROMPT, params) for _ in range(3)] for family, engine in engines.items()}
    for engine in engines.values():
        engine.start()
    for family, sequences in running.items():
        assert [ids_of(sequence) for sequence in sequences] == [tiny.generate(family, PROMPT, 40)] * 3
        engines[family].close()


def test_it_keeps_nothing_of_a_sequence_that_ended(engine: Engine) -> None:
    sequence = engine.submit(PROMPT, SHORT)
    ids_of(sequence)
    engine.submit(PROMPT, SHORT).wait(10)
    gone = weakref.ref(sequence)
    del sequence
    gc.collect()
    assert gone() is None
