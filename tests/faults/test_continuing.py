"""Another engine goes on from the ids alone: wherever the first one died, the reply is the one it would have been."""

import pytest

from generation.engine import Engine, EngineConfig, EventType, FinishReason, SamplingParams
from tests.engine import tiny

PROMPT = [30, 50, 70]
BASE = {"temperature": 1.0, "top_p": 0.95, "seed": 5, "max_new_tokens": 40}


def run(params: SamplingParams, known: list[int]) -> tuple[list[int], list[str], FinishReason | None]:
    """(ids, the text of each, reason) of what a fresh engine adds to the known ids."""
    engine = Engine(tiny.model("llama", ()), tiny.tokenizer(), EngineConfig(slots=2, context=256, prefill_chunk=8))
    engine.submit([99] * 20, SamplingParams(temperature=0, max_new_tokens=30))
    sequence = engine.submit(PROMPT, params, identifier="mine", generated_ids=known)
    ids, texts = [], []
    while not sequence.ended:
        for event in engine.iterate():
            if event.identifier == "mine" and event.type is EventType.TOKEN:
                ids += event.ids
                texts.append(event.text)
    end = sequence.wait()
    assert end is not None
    engine.close()
    return ids, texts, end.reason


def stop_strings() -> tuple[str, ...]:
    """One that the reply with penalties ends with, and one whose beginning it says and doesn't complete."""
    _, texts, _ = run(SamplingParams(**BASE, repetition_penalty=1.3, presence_penalty=0.5), [])
    text = "".join(texts)
    middle = 2 * len(text) // 3
    early = len(text) // 4
    return text[middle : middle + 6], text[early : early + 4] + "\0"


@pytest.mark.parametrize("stops", [False, True], ids=["to its length", "to a stop string"])
def test_it_says_the_same_from_every_cut_on(stops: bool) -> None:
    """Stop strings, penalties, half characters and random numbers are where they were."""
    params = SamplingParams(**BASE, repetition_penalty=1.3, presence_penalty=0.5, stop=stop_strings() if stops else ())
    ids, texts, reason = run(params, [])
    assert reason is (FinishReason.STOP_STRING if stops else FinishReason.LENGTH)
    assert "" in texts, "some text is held back"
    for cut in range(1, len(ids)):
        assert run(params, ids[:cut]) == (ids[cut:], texts[cut:], reason), cut
    assert run(params, ids) == ([], [], reason)
