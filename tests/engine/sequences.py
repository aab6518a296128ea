"""Sequences without an engine, as sampling gets them."""

from generation.engine import SamplingParams
from generation.engine.detokenizer import Detokenizer
from generation.engine.mock import MockStream
from generation.engine.sequence import Sequence


def sequence(
    params: SamplingParams,
    prompt: list[int],
    generated: list[int] | None = None,
    seed: int = 0,
    eos_ids: frozenset[int] = frozenset({1}),
) -> Sequence:
    made = Sequence(
        prompt,
        params,
        identifier=None,
        seed=seed,
        max_new_tokens=100,
        eos_ids=eos_ids,
        detokenizer=Detokenizer(MockStream(["x"]), ()),
        wake=lambda: None,
        start_reading=lambda: None,
        keep_events=False,
    )
    made.replay(generated or [])
    return made
