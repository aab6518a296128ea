"""The batched sampler beside a plain one that takes a row at a time, for random settings."""

import math
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.engine import SamplingParams
from generation.engine.sampling import _MOST_CANDIDATES, Sampler, draw
from generation.engine.sequence import Sequence
from tests.engine.sequences import sequence

ENDS = frozenset({1, 5, 10**6})
SIZES = (60, _MOST_CANDIDATES + 700)
TOLERANCE = 1e-5


def penalised(logits: torch.Tensor, said: Sequence) -> list[float]:
    """Bias, repetition (CTRL), presence and frequency, ends that come too early; one id after the other."""
    params = said.params
    scores = logits.double().tolist()
    for token_id, bias in params.logit_bias.items():
        scores[token_id] += bias
    for token_id in set(said.ids):
        factor = params.repetition_penalty
        scores[token_id] *= factor if scores[token_id] < 0 else 1 / factor
        count = said.generated_ids.count(token_id)
        scores[token_id] -= params.presence_penalty * (count > 0) + params.frequency_penalty * count
    if said.num_generated < params.min_new_tokens:
        for token_id in said.eos_ids:
            if token_id < len(scores):
                scores[token_id] = -math.inf
    return scores


def choose(scores: list[float], params: SamplingParams, point: float, nudge: float) -> int:
    """``nudge`` moves the borders of top_p and min_p, where rounding may move them too."""
    if params.temperature == 0:
        return scores.index(max(scores))
    weights = [math.exp((score - max(scores)) / params.temperature) for score in scores]
    if params.top_k:
        least = sorted(weights)[-min(params.top_k, len(weights))]
        weights = [weight if weight >= least * (1 - 1e-9) else 0.0 for weight in weights]
    if params.top_p < 1:
        mass, least = 0.0, 0.0
        for weight in sorted(weights, reverse=True):
            if mass >= (params.top_p + nudge) * sum(weights):
                break
            mass, least = mass + weight, weight
        weights = [weight if weight >= least * (1 - 1e-9) else 0.0 for weight in weights]
    least = params.min_p * (1 + nudge) * max(weights)
    weights = [weight if weight >= least else 0.0 for weight in weights]
    goal, mass = point * sum(weights), 0.0
    for token_id, weight in enumerate(weights):
        mass += weight
        if mass > goal:
            return token_id
    return max(token_id for token_id, weight in enumerate(weights) if weight)


def agrees(token_id: object, logits: torch.Tensor, said: Sequence) -> bool:
    """Whether it is the plain sampler's id, or one that rounding in float32 may lead to."""
    scores = penalised(logits, said)
    point = draw(said.seed, said.num_generated)
    if token_id == choose(scores, said.params, point, 0.0):
        return True
    by = (-TOLERANCE, TOLERANCE)
    return token_id in {choose(scores, said.params, point + moved, nudge) for moved in by for nudge in by}


def sometimes(neutral: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(neutral) | values


def params(vocab_size: int) -> st.SearchStrategy[SamplingParams]:
    return st.builds(
        SamplingParams,
        min_new_tokens=st.integers(0, 6),
        temperature=sometimes(0.0, st.floats(0.1, 2)),
        top_k=sometimes(0, st.integers(1, vocab_size + 5)),
        top_p=sometimes(1.0, st.floats(0.05, 0.999)),
        min_p=sometimes(0.0, st.floats(0.001, 1)),
        repetition_penalty=sometimes(1.0, st.floats(0.5, 2)),
        presence_penalty=sometimes(0.0, st.floats(-2, 2)),
        frequency_penalty=sometimes(0.0, st.floats(-2, 2)),
        logit_bias=st.dictionaries(st.integers(0, vocab_size - 1), st.floats(-100, 100), max_size=4),
        ignore_eos=st.booleans(),
    )


@st.composite
def steps(draw_: st.DrawFn) -> tuple[torch.Tensor, list[Sequence]]:
    """Logits of one step, steep or flat and with equal ones among them, and the sequences they are for."""
    vocab_size = draw_(st.sampled_from(SIZES))
    num_rows = draw_(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw_(st.integers(0, 2**32)))
    steepness = draw_(st.sampled_from([0.3, 2.0, 6.0]))
    logits = torch.randn(num_rows, vocab_size, generator=generator) * steepness
    if draw_(st.booleans()):
        logits = (logits * 8).round() / 8
    if draw_(st.booleans()):
        logits = logits.bfloat16()
    ids = st.lists(st.integers(0, 40), max_size=8)
    sequences = [
        sequence(
            draw_(params(vocab_size)),
            [2, *draw_(ids)],
            [token_id for token_id in draw_(ids) if token_id not in ENDS],
            seed=draw_(st.integers(0, 2**63 - 1)),
            eos_ids=ENDS,
        )
        for _ in range(num_rows)
    ]
    return logits, sequences


@settings(max_examples=40, deadline=None)
@given(steps())
def test_it_chooses_what_a_plain_sampler_chooses(step: tuple[torch.Tensor, list[Sequence]]) -> None:
    logits, sequences = step
    chosen = Sampler().sample(logits, sequences)
    for row, said, token_id in zip(logits, sequences, chosen, strict=True):
        assert agrees(token_id, row, said), said.params


@settings(max_examples=40, deadline=None)
@given(steps())
def test_it_chooses_for_each_what_it_chooses_for_it_alone(step: tuple[torch.Tensor, list[Sequence]]) -> None:
    logits, sequences = step
    together = Sampler().sample(logits, sequences)
    assert together == [Sampler().sample(row[None], [said])[0] for row, said in zip(logits, sequences, strict=True)]


@settings(max_examples=20, deadline=None)
@given(steps(), st.data())
def test_it_follows_replies_through_joins_and_leaves(
    step: tuple[torch.Tensor, list[Sequence]], data: st.DataObject
) -> None:
    """What one sampler kept of the steps before gives the ids that one without a past gives."""
    logits, sequences = step
    sampler = Sampler()
    for _ in range(6):
        rows = data.draw(st.lists(st.sampled_from(range(len(sequences))), unique=True, min_size=1))
        there = [sequences[row] for row in rows]
        chosen = sampler.sample(logits[rows], there)
        assert chosen == Sampler().sample(logits[rows], there)
        for said, token_id in zip(there, chosen, strict=True):
            assert isinstance(token_id, int)
            said.accept(token_id)
