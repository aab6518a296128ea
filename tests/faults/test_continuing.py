"""Another engine goes on from the ids alone: wherever the first one died, the reply is the one it would have been."""

from typing import Any, cast

import pytest

from generation.engine import Engine, EngineConfig, EventType, FinishReason, SamplingParams
from tests.engine import tiny

PROMPT = [30, 50, 70]
BASE: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 0.95,
    "seed": 5,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.5,
    "max_new_tokens": 40,
}


Said = tuple[list[int], list[str], FinishReason | None]


def run(params: SamplingParams, *known: list[int]) -> list[Said]:
    """(ids, the text of each, reason) of what one engine adds to each of these beginnings, side by side."""
    engine = Engine(tiny.model("llama", ()), tiny.tokenizer(), EngineConfig(slots=16, context=128, prefill_chunk=32))
    sequences = [
        engine.submit(PROMPT, params, identifier=number, generated_ids=ids) for number, ids in enumerate(known)
    ]
    added: list[tuple[list[int], list[str]]] = [([], []) for _ in known]
    while engine.num_remaining_jobs():
        for event in engine.iterate():
            if event.type is EventType.TOKEN:
                ids, texts = added[cast(int, event.identifier)]
                ids += event.ids
                texts.append(event.text)
    ends = [sequence.wait() for sequence in sequences]
    return [(*said, end.reason) for said, end in zip(added, ends, strict=True) if end is not None]


def stop_strings() -> tuple[str, ...]:
    """One that the reply with penalties ends with, and one whose beginning it says and doesn't complete."""
    ((_, texts, _),) = run(SamplingParams(**BASE), [])
    text = "".join(texts)
    middle = 2 * len(text) // 3
    early = len(text) // 4
    return text[middle : middle + 6], text[early : early + 4] + "\0"


@pytest.mark.parametrize("stops", [False, True], ids=["to its length", "to a stop string"])
def test_it_says_the_same_from_every_cut_on(stops: bool) -> None:
    """Stop strings, penalties, half characters and random numbers are where they were: halves of characters and of
    stop strings reached people even without a fault (antonellof/ferrox#124, vllm-project/vllm#3574).
    """
    params = SamplingParams(**BASE, stop=stop_strings() if stops else ())
    ((ids, texts, reason),) = run(params, [])
    assert reason is (FinishReason.STOP_STRING if stops else FinishReason.LENGTH)
    assert "" in texts, "some text is held back"
    cuts = range(1, len(ids) + 1)
    said = run(params, *(ids[:cut] for cut in cuts))
    assert said == [(ids[cut:], texts[cut:], reason) for cut in cuts]
