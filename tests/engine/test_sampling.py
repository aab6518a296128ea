"""Sampling of one sequence depends on its own parameters, seed and position, never on its neighbours."""

from collections import Counter

import pytest
import torch

from generation.engine import Engine, EngineConfig, SamplingParams
from generation.engine.sampling import Sampler, draw
from tests.engine import tiny
from tests.engine.sequences import sequence


def reply(prompt: list[int], params: SamplingParams, known: int = 0, neighbours: int = 0) -> list[int]:
    engine = Engine(tiny.model("llama", ()), tiny.tokenizer(), EngineConfig(slots=4, context=256))
    whole: list[int] = []
    if known:
        whole = reply(prompt, params)[:known]
    for number in range(neighbours):
        engine.submit([90 + number] * 20, SamplingParams(temperature=1.5, max_new_tokens=30, seed=number))
    engine.submit(prompt, params, identifier="mine", generated_ids=whole)
    while engine.num_remaining_jobs():
        for event in engine.iterate():
            whole += event.ids if event.identifier == "mine" else ()
    return whole


def test_it_draws_the_same_ids_whoever_runs_beside_and_wherever_it_resumes() -> None:
    params = SamplingParams(temperature=1.0, top_p=0.9, seed=11, max_new_tokens=20)
    alone = reply([30, 50, 70], params)
    assert len(set(alone)) > 5
    assert reply([30, 50, 70], params, neighbours=3) == alone
    assert [reply([30, 50, 70], params, known=known) for known in (1, 7, 19)] == [alone] * 3
    assert reply([30, 50, 70], SamplingParams(temperature=1.0, top_p=0.9, seed=12, max_new_tokens=20)) != alone


def test_it_draws_evenly() -> None:
    numbers = [draw(seed, position) for seed in range(100) for position in range(100)]
    assert all(0 <= number < 1 for number in numbers)
    counts = Counter(int(number * 10) for number in numbers)
    assert min(counts.values()) > 850 and max(counts.values()) < 1150
    assert len(set(numbers)) == len(numbers)


def frequencies(logits: list[float], params: SamplingParams, draws: int = 2000) -> list[float]:
    rows = [sequence(params, [0], seed=seed) for seed in range(draws)]
    ids = Sampler().sample(torch.tensor([logits]).expand(draws, -1), rows)
    counts = Counter(token for token in ids if isinstance(token, int))
    return [counts[token] / draws for token in range(len(logits))]


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        (SamplingParams(temperature=1.0), {0, 1, 2, 3}),
        (SamplingParams(temperature=1.0, top_k=2), {0, 1}),
        (SamplingParams(temperature=1.0, top_k=100), {0, 1, 2, 3}),
        (SamplingParams(temperature=1.0, top_p=0.6), {0, 1}),
        (SamplingParams(temperature=1.0, top_p=0.01), {0}),
        (SamplingParams(temperature=1.0, min_p=0.5), {0, 1}),
        (SamplingParams(temperature=0.0), {0}),
        (SamplingParams(temperature=1e-4), {0}),
    ],
)
def test_it_draws_from_the_ids_that_the_parameters_allow(params: SamplingParams, allowed: set[int]) -> None:
    weights = torch.tensor([0.5, 0.3, 0.15, 0.05])
    expected = torch.zeros(4)
    expected[list(allowed)] = weights[list(allowed)]
    expected /= expected.sum()
    got = frequencies(weights.log().tolist(), params)
    assert {token for token, share in enumerate(got) if share} == allowed
    assert got == pytest.approx(expected.tolist(), abs=0.04)


def test_it_applies_each_rows_own_parameters() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.9, 1.0]])
    rows = [
        sequence(SamplingParams(temperature=0), [0], []),
        sequence(SamplingParams(temperature=0, repetition_penalty=2.0), [1], []),
        sequence(SamplingParams(temperature=0, presence_penalty=1.0), [1], []),  # the prompt does not count
        sequence(SamplingParams(temperature=0, presence_penalty=1.0), [3], [2, 2]),
        sequence(SamplingParams(temperature=0, frequency_penalty=1.0, presence_penalty=0.5), [3], [2, 2]),
        sequence(SamplingParams(temperature=0, min_new_tokens=1), [3], []),  # 1 is the end here
        sequence(SamplingParams(temperature=1.0, top_k=1), [3], []),
        sequence(SamplingParams(temperature=0, min_new_tokens=1, ignore_eos=True), [3], []),
        sequence(SamplingParams(temperature=0, logit_bias={3: 2.5, 1: -0.5}), [3], []),
    ]
    assert Sampler().sample(logits.expand(len(rows), -1), rows) == [1, 2, 1, 1, 1, 2, 1, 1, 3]


def test_it_fails_only_the_row_without_a_finite_number() -> None:
    logits = torch.tensor([[0.0, 1.0], [float("nan"), 1.0], [float("-inf")] * 2, [1.0, 0.0]])
    rows = [sequence(SamplingParams(temperature=t), [0], []) for t in (0, 1.0, 0, 1e-4)]
    first, nan, infinite, last = Sampler().sample(logits, rows)
    assert (first, last) == (1, 0)
    assert isinstance(nan, ArithmeticError) and isinstance(infinite, ArithmeticError)
