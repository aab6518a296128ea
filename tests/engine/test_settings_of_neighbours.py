"""Settings that only code gives, ends, and bad values, in an engine that others use at the same time."""

from collections.abc import Callable
from typing import Any

import pytest

from generation.engine import (
    Engine,
    EngineConfig,
    Event,
    EventType,
    FinishReason,
    ParamsError,
    PromptError,
    PromptTooLong,
    SamplingParams,
    Sequence,
)
from generation.engine.mock import MockCodec, MockRunner
from tests.engine import tiny

PROMPT = [30, 50, 70]
GREEDY = SamplingParams(temperature=0, max_new_tokens=30)
CONTEXT = 64


def build(eos: tuple[int, ...] = (), slots: int = 4) -> Engine:
    return Engine(tiny.model("llama", eos), tiny.tokenizer(), EngineConfig(slots=slots, context=CONTEXT))


def drain(engine: Engine) -> list[Event]:
    events = []
    while engine.num_remaining_jobs():
        events += engine.iterate()
    return events


def ids_of(events: list[Event], identifier: object = None) -> list[int]:
    return [token for event in events for token in event.ids if event.identifier == identifier]


def reason_of(sequence: Sequence) -> FinishReason | None:
    end = sequence.wait(0)
    assert end is not None
    return end.reason


FREE = tiny.generate("llama", PROMPT, 30, ())
END = next(token for index, token in enumerate(FREE) if index > 3 and token not in FREE[:index])


def test_it_goes_on_after_an_end_that_is_to_be_ignored_beside_one_that_heeds_it() -> None:
    """A list of ends was ignored and replies ran on (Blaizzy/mlx-vlm#2112); here only who asks for it does."""
    engine = build((tiny.EOS, END))
    ignoring = SamplingParams(temperature=0, max_new_tokens=30, ignore_eos=True)
    ends = [engine.submit(PROMPT, GREEDY, identifier="heeds"), engine.submit(PROMPT, ignoring, identifier="ignores")]
    events = drain(engine)
    assert ids_of(events, "heeds") == FREE[: FREE.index(END) + 1]
    assert ids_of(events, "ignores") == FREE
    assert [reason_of(end) for end in ends] == [FinishReason.STOP, FinishReason.LENGTH]


def test_it_does_not_show_an_end_that_has_a_text() -> None:
    engine = build((tiny.EOS, END))
    assert tiny.tokenizer().decode([END])
    engine.submit(PROMPT, GREEDY)
    said = [event for event in drain(engine) if event.type is EventType.TOKEN]
    text = "".join(event.text for event in said)
    assert text == bytes_text(FREE[: FREE.index(END)])


def bytes_text(ids: list[int]) -> str:
    """A decode of the whole, without half a character at its end."""
    text: str = tiny.tokenizer().decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.rstrip("\ufffd")


def test_it_never_says_what_is_biased_away_and_leaves_the_neighbours() -> None:
    engine = build()
    banned = dict.fromkeys(FREE[:10], -100.0)
    engine.submit(PROMPT, GREEDY, identifier="free")
    engine.submit(PROMPT, SamplingParams(temperature=0, max_new_tokens=30, logit_bias=banned), identifier="biased")
    wanted = SamplingParams(temperature=1, max_new_tokens=5, logit_bias={99: 100})
    engine.submit(PROMPT, wanted, identifier="wanted")
    events = drain(engine)
    assert ids_of(events, "free") == FREE
    assert not set(ids_of(events, "biased")) & set(banned)
    assert ids_of(events, "wanted") == [99] * 5


def test_it_begins_each_reply_at_its_own_least_length() -> None:
    engine = build((END,))
    for least in (0, 7, 20):
        params = SamplingParams(temperature=0, max_new_tokens=30, min_new_tokens=least)
        engine.submit(PROMPT, params, identifier=least)
    events = drain(engine)
    for least in (0, 7, 20):
        said = ids_of(events, least)
        assert len(said) > least and END not in said[:least]
    assert ids_of(events, 0) == FREE[: FREE.index(END) + 1]


BAD: list[Callable[[Engine], Any]] = [
    lambda engine: engine.submit(PROMPT, SamplingParams(temperature=float("nan"))),
    lambda engine: engine.submit(PROMPT, SamplingParams(temperature=float("inf"))),
    lambda engine: engine.submit(PROMPT, SamplingParams(top_p=2.0)),
    lambda engine: engine.submit(PROMPT, SamplingParams(stop=("",))),
    lambda engine: engine.submit(PROMPT, SamplingParams(logit_bias={tiny.VOCAB_SIZE: 1})),
    lambda engine: engine.submit(PROMPT, SamplingParams(logit_bias={10**30: 1})),
    lambda engine: engine.submit([tiny.VOCAB_SIZE], GREEDY),
    lambda engine: engine.submit([-1], GREEDY),
]


@pytest.mark.parametrize("bad", BAD)
def test_it_refuses_a_bad_value_while_another_reply_goes_on(bad: Callable[[Engine], Any]) -> None:
    """One bad parameter killed the engine for everybody (vllm-project/vllm#5822, ggml-org/llama.cpp#19367)."""
    engine = build()
    engine.submit(PROMPT, GREEDY)
    events = engine.iterate() + engine.iterate()
    with pytest.raises((ParamsError, PromptError)):
        bad(engine)
    assert ids_of(events + drain(engine)) == FREE


@pytest.mark.parametrize("length", [CONTEXT - 1, CONTEXT, CONTEXT + 1, 10 * CONTEXT])
def test_it_answers_a_prompt_of_the_context_or_refuses_it_with_the_figures(length: int) -> None:
    """Too long a prompt hung or came back empty (ggml-org/llama.cpp#3817, theroyallab/tabbyAPI#203)."""
    engine = build()
    prompt = [4 + number % 300 for number in range(length)]
    if length < CONTEXT:
        sequence = engine.submit(prompt, GREEDY)
        assert len(ids_of(drain(engine))) == 1 and reason_of(sequence) is FinishReason.LENGTH
    else:
        with pytest.raises(PromptTooLong, match=f"prompt has {length} tokens; this model takes {CONTEXT - 1}"):
            engine.submit(prompt, GREEDY)
        assert engine.num_remaining_jobs() == 0 and engine.stats().idle


def test_it_takes_any_bias_where_a_model_has_no_vocabulary() -> None:
    engine = Engine(MockRunner(CONTEXT, 1e6), MockCodec())
    prompt = engine.encode([{"role": "user", "content": "a b"}])
    engine.submit(prompt, SamplingParams(max_new_tokens=2, logit_bias={10**6: 1}))
    assert ids_of(drain(engine)) == [0, 1]
