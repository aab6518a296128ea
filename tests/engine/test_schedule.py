"""Random schedules: whoever joins, leaves, begins alike or goes on from ids, each reply is the one of `generate`."""

import random
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generation.engine import Engine, EngineConfig, FinishReason, SamplingParams, Sequence
from tests.engine import tiny

LENGTH = 12
CONVERSATIONS = 3


@cache
def prompt(family: str, conversation: int, turn: int) -> tuple[int, ...]:
    """All conversations share their beginning; turns 1 and 2 both go on from turn 0's reply."""
    rng = random.Random(f"{conversation} {turn}")
    own = tuple(rng.randrange(4, tiny.VOCAB_SIZE) for _ in range(rng.randint(1, 30)))
    if turn:
        return prompt(family, conversation, 0) + reply(family, conversation, 0) + own
    shared = random.Random("system")
    return (*(shared.randrange(4, tiny.VOCAB_SIZE) for _ in range(25)), *own)


@cache
def reply(family: str, conversation: int, turn: int) -> tuple[int, ...]:
    return tuple(tiny.generate(family, list(prompt(family, conversation, turn)), LENGTH, ()))


submit = st.tuples(
    st.integers(0, CONVERSATIONS - 1), st.integers(0, 2), st.integers(1, LENGTH), st.sampled_from([0, 0, 1, 5])
)
cancel = st.integers(0, 20)
steps = st.integers(1, 6).map(range)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral"])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    schedule=st.lists(submit | cancel | steps, min_size=3, max_size=24),
    slots=st.integers(1, 4),
    prefill_chunk=st.sampled_from([16, 64, 0]),
    cache_tokens=st.sampled_from([None, 100, 170]),
)
def test_it_equals_generate_whatever_the_schedule(
    family: str,
    schedule: list[tuple[int, int, int, int] | int | range],
    slots: int,
    prefill_chunk: int,
    cache_tokens: int | None,
) -> None:
    """One of several second turns at once was wrong: their slots moved before all lengths were up to date."""
    config = EngineConfig(slots=slots, context=128, prefill_chunk=prefill_chunk, cache_tokens=cache_tokens)
    engine = Engine(tiny.model(family, ()), tiny.tokenizer(), config)
    running: list[tuple[Sequence, tuple[int, ...]]] = []
    for action in schedule:
        if isinstance(action, tuple):
            conversation, turn, length, num_known = action
            expected = reply(family, conversation, turn)[:length]
            sequence = engine.submit(
                prompt(family, conversation, turn),
                SamplingParams(temperature=0, max_new_tokens=length),
                generated_ids=expected[: min(num_known, length - 1)],
            )
            running.append((sequence, expected))
        elif isinstance(action, range):
            for _ in action:
                engine.iterate()
        elif running:
            running[action % len(running)][0].cancel()
    while engine.num_remaining_jobs():
        engine.iterate()
    for sequence, expected in running:
        end = sequence.wait(0)
        assert end is not None and end.usage is not None
        # Of a first attempt's prompt the last id is always computed, or there would be no logits to go on from.
        assert end.usage.cached_tokens <= end.usage.prompt_tokens - (not sequence.num_replayed)
        said = tuple(sequence.generated_ids)
        if end.reason is FinishReason.CANCELLED:
            assert said == expected[: len(said)]
        else:
            assert (said, end.reason) == (expected, FinishReason.LENGTH)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral"])
def test_these_replies_differ(family: str) -> None:
    """Tiny random models can say one thing for ever, and then every schedule passes."""
    every = [reply(family, conversation, turn) for conversation in range(CONVERSATIONS) for turn in range(3)]
    assert len(set(every)) == len(every)
    assert len({token for each in every for token in each}) > 40
