"""What it costs to sample one step when each of its sequences has settings of its own, on one core."""

import time
from collections.abc import Callable
from itertools import chain
from random import Random
from statistics import median
from typing import Any

import torch

from generation.engine import SamplingParams
from generation.engine.sampling import Sampler
from generation.engine.sequence import Sequence
from tests.benchmarks.figures import Figure
from tests.engine.sequences import sequence

NUM_SEQUENCES, NUM_PROMPT, NUM_ROUNDS = 16, 512, 15
VOCAB_SIZES = (49_152, 131_072)
MOST = 1.25

PLAIN = SamplingParams(temperature=0.8)
EQUAL = SamplingParams(
    temperature=0.8,
    top_k=50,
    top_p=0.9,
    min_p=0.02,
    repetition_penalty=1.1,
    presence_penalty=0.3,
    frequency_penalty=0.2,
)


def different(number: int) -> SamplingParams:
    """As many kinds at once as ``EQUAL`` has, each with another value."""
    return SamplingParams(
        temperature=0.5 + 0.06 * number,
        top_k=(0, 10, 50, 200)[number % 4],
        top_p=0.8 + 0.012 * number,
        min_p=0.005 * number,
        repetition_penalty=1 + 0.02 * number,
        presence_penalty=0.05 * number,
        frequency_penalty=0.04 * number,
        seed=number,
        min_new_tokens=(0, 100)[number % 2],
        logit_bias={1_000 + number: -1.0 * number},
    )


def measure(_: object) -> list[Figure]:
    torch.set_num_threads(1)
    return list(chain.from_iterable(_measure(vocab_size) for vocab_size in VOCAB_SIZES))


def _measure(vocab_size: int) -> list[Figure]:
    # As steep as a language model's: its likeliest 50 of 49,152 ids have 81 % of the weight.
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(NUM_SEQUENCES, vocab_size, generator=generator).abs_().pow_(1.8).mul_(1.2)
    settings = {
        "no settings but a temperature": [PLAIN] * NUM_SEQUENCES,
        "equal settings": [EQUAL] * NUM_SEQUENCES,
        "different settings": [different(number) for number in range(NUM_SEQUENCES)],
    }
    steps = {name: _stepper(logits, every) for name, every in settings.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(NUM_ROUNDS):  # interleaved, so that other work slows all of them
        for name, step in steps.items():
            seconds[name].append(step())
    each = {name: median(taken[1:]) for name, taken in seconds.items()}
    name = f"16 sequences, {vocab_size:,} ids"
    plain, equal, mixed = each.values()
    return [
        *(Figure(f"{name}: {what}", taken * 1000, "ms") for what, taken in each.items()),
        Figure(f"{name}: different to equal settings", mixed / equal, "×", MOST),
        Figure(f"{name}: different settings to a temperature alone", mixed / plain, "×"),
    ]


def _stepper(logits: torch.Tensor, settings: list[SamplingParams]) -> Callable[[], float]:
    """Each call samples one step and takes its ids as said; the CPU time of the former."""
    rng = Random(3)
    sampler = Sampler()
    rows: list[Sequence] = [
        sequence(params, [rng.randrange(logits.shape[-1]) for _ in range(NUM_PROMPT)]) for params in settings
    ]

    def step() -> float:
        started = time.thread_time()
        ids: list[Any] = sampler.sample(logits, rows)
        taken = time.thread_time() - started
        for row, token_id in zip(rows, ids, strict=True):
            row.accept(token_id)
        return taken

    return step
