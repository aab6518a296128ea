"""The model without weights: words of the last user message, in the real engine."""

import time
from collections.abc import Iterator

import pytest

from generation.engine import (
    Engine,
    EventType,
    FinishReason,
    PromptTooLong,
    SamplingParams,
    load_engine,
    parse_models,
)

ALPHA = [{"role": "user", "content": "alpha  beta\ngamma"}]


def build(options: str = "rate=100000") -> Engine:
    (spec,) = parse_models(f"m=mock:?{options}")
    return load_engine(spec, slots=2)


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = build()
    yield made
    made.close()


def texts(engine: Engine, messages: list[dict[str, str]], known: tuple[int, ...] = (), **params: object) -> list[str]:
    checked = SamplingParams.parse(params, max_new_tokens=1000, default_new_tokens=64)
    sequence = engine.submit(engine.encode(messages), checked, generated_ids=known)
    return [event.text for event in sequence if event.type is EventType.TOKEN]


def test_it_repeats_the_last_user_messages_words(engine: Engine) -> None:
    assert texts(engine, ALPHA, max_new_tokens=4) == ["alpha", " beta", " gamma", " alpha"]
    history = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "old"}, *ALPHA]
    assert texts(engine, history, max_new_tokens=2) == ["alpha", " beta"]
    assert len(texts(engine, ALPHA)) == 64


def test_it_counts_words_and_ends_at_its_length(engine: Engine) -> None:
    sequence = engine.submit(engine.encode(ALPHA), SamplingParams(max_new_tokens=5))
    end = sequence.wait(10) if engine.start() else None
    assert end is not None and end.reason is FinishReason.LENGTH and end.usage is not None
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (3, 5)


def test_it_counts_on_from_a_trailing_assistant_message(engine: Engine) -> None:
    messages = [*ALPHA, {"role": "assistant", "content": "alpha beta gamma alpha"}]
    assert texts(engine, messages, max_new_tokens=2) == [" beta", " gamma"]


def test_it_goes_on_from_ids_alone(engine: Engine) -> None:
    assert texts(engine, ALPHA, known=(0, 1), max_new_tokens=4) == [" gamma", " alpha"]
    messages = [*ALPHA, {"role": "assistant", "content": "alpha"}]
    assert texts(engine, messages, known=(1,), max_new_tokens=3) == [" gamma", " alpha"]


def test_it_heeds_stop_strings(engine: Engine) -> None:
    assert "".join(texts(engine, ALPHA, stop=["beta gam"])) == "alpha "
    assert "".join(texts(engine, ALPHA, stop=["beta x"], max_new_tokens=3)) == "alpha beta gamma"


def test_it_refuses_more_words_than_its_context() -> None:
    engine = build("rate=100000&context=5")
    with pytest.raises(PromptTooLong, match="6 tokens"):
        engine.submit(engine.encode([{"role": "user", "content": "a b c d e f"}]))
    assert len(texts(engine, ALPHA)) == 2
    engine.close()


def test_it_paces_each_sequence_by_itself() -> None:
    engine = build("rate=200")
    started = time.monotonic()
    alone = [engine.submit(engine.encode(ALPHA), SamplingParams(max_new_tokens=20))]
    for sequence in alone:
        list(sequence)
    one = time.monotonic() - started
    started = time.monotonic()
    for sequence in [engine.submit(engine.encode(ALPHA), SamplingParams(max_new_tokens=20)) for _ in range(2)]:
        list(sequence)
    two = time.monotonic() - started
    assert one >= 20 / 200
    assert two < 1.9 * one
    engine.close()


def test_it_does_not_burst_after_a_stall() -> None:
    engine = build("rate=20")
    sequence = engine.submit(engine.encode(ALPHA), SamplingParams(max_new_tokens=50))
    engine.iterate()
    sequence.due_at -= 10  # as if the thread had slept for ten seconds
    tokens = [event for _ in range(20) for event in engine.iterate() if event.type is EventType.TOKEN]
    assert len(tokens) <= 2


def test_it_wakes_from_a_long_wait_for_a_cancel() -> None:
    engine = build("rate=0.001").start()
    sequence = engine.submit(engine.encode(ALPHA), SamplingParams())
    next(iter(sequence))
    sequence.cancel()
    end = sequence.wait(30)
    assert end is not None and end.reason is FinishReason.CANCELLED
    engine.close()
