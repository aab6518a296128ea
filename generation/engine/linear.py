"""Linear layers on a CPU, each computed in the way that a short measurement at load finds fastest.

Knows nothing of the engine. Which way wins depends on the processor, the dtype, the shape and the number of rows,
so none is taken for granted. Letters: N rows · I inputs · O outputs.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Way = Callable[[Any, torch.Tensor], torch.Tensor]  # a layer and (N, I) → (N, O)
Ways = tuple[Way, Way, Way, Way]  # for each of ROWS, and for all of them at once
Measure = Callable[[Way, Sequence[Any], int], float]  # a way, layers of one shape and N → seconds

# Decoding one or two sequences, decoding several, computing a chunk of a prompt.
ROWS = (1, 8, 64)
_CLASS_ENDS = (2, 16)

_BUDGET_SECONDS = 1.0
_LONG_SECONDS = 0.02  # a call that takes longer is not repeated, nor tried with more rows
_LEAST_GAIN = 1.05
_NUM_SAMPLES = 4  # layers of one shape that are called in turn, lest one stays in the processor's cache
_NUM_ROUNDS = 3


def plain(layer: Any, rows: torch.Tensor) -> torch.Tensor:
    return F.linear(rows, layer.weight, layer.bias)


def transposed(layer: Any, rows: torch.Tensor) -> torch.Tensor:
    """x Wᵀ as (W xᵀ)ᵀ: oneDNN then packs the few activations instead of the whole weight at every call."""
    count = rows.shape[0]
    if count == 1:  # one row would take the slow path for vectors
        rows = rows.expand(2, -1)
    outputs = torch.mm(layer.weight, rows.t()).t()[:count]
    if layer.bias is not None:
        outputs = outputs + layer.bias
    return outputs.contiguous()


class Chosen:
    """What a layer needs to be computed in one of several ways, by its number of rows."""

    ways: Ways

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:  # (…, I) → (…, O)
        rows = inputs.reshape(-1, inputs.shape[-1])
        # A compiled graph serves every number of rows: a choice among them would compile it several times.
        index = -1 if torch.compiler.is_compiling() else sum(rows.shape[0] > end for end in _CLASS_ENDS)
        return self.ways[index](self, rows).reshape(*inputs.shape[:-1], -1)


class _ChosenLinear(Chosen, nn.Linear):  # type: ignore[misc]
    pass


def speed_up_linears(model: Any, measure: Measure | None = None) -> str | None:
    """Change a model on a CPU in place; what was found, for the log, or None where there is nothing to choose."""
    if model.device.type != "cpu":
        return None
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    if not layers:
        return None
    chosen, said = choose(layers, (plain, transposed), measure)
    for layer, ways in zip(layers, chosen, strict=True):
        if ways != (plain,) * len(ways):
            layer.__class__ = _ChosenLinear
            layer.ways = ways
    return said


def choose(
    layers: Sequence[Any], candidates: tuple[Way, Way], measure: Measure | None = None
) -> tuple[list[Ways], str]:
    """For each layer its ways, and a line that says which won. The first candidate wins where none was timed.

    It takes about a second; layers of one shape are taken to be alike.
    """
    measure = measure or _seconds
    until = time.monotonic() + _BUDGET_SECONDS
    shapes: dict[tuple[int, int], list[Any]] = {}
    for layer in layers:
        shapes.setdefault((layer.out_features, layer.in_features), []).append(layer)
    heaviest = sorted(shapes, key=lambda shape: -len(shapes[shape]) * shape[0] * shape[1])
    found: dict[tuple[tuple[int, int], int], Way] = {}
    losses = {shape: dict.fromkeys(candidates, 0.0) for shape in shapes}
    totals = {num_rows: dict.fromkeys((*candidates, None), 0.0) for num_rows in ROWS}
    slow: set[tuple[int, int]] = set()
    for num_rows in sorted(ROWS, key=lambda rows: rows != ROWS[1]):  # the commonest first
        for shape in heaviest:
            if time.monotonic() > until or (shape in slow and num_rows > ROWS[1]):
                continue
            alike = shapes[shape]
            sample = alike[:: -(-len(alike) // _NUM_SAMPLES)]
            times = {way: measure(way, sample, num_rows) * len(alike) / len(sample) for way in candidates}
            best = _best(times)
            if times[best] > _LONG_SECONDS * len(alike):
                slow.add(shape)
            found[shape, num_rows] = best
            for way, seconds in times.items():
                totals[num_rows][way] += seconds
                losses[shape][way] += seconds / times[best]
            totals[num_rows][None] += times[best]
    ways: dict[tuple[int, int], Ways] = {}
    for shape in shapes:
        few, several, many = (found.get((shape, num_rows), candidates[0]) for num_rows in ROWS)
        ways[shape] = few, several, many, _best(losses[shape])
    return [ways[layer.out_features, layer.in_features] for layer in layers], _tell(totals, candidates)


def _best(costs: dict[Way, float]) -> Way:
    """The cheapest, but the first where little is gained."""
    first, best = next(iter(costs)), min(costs, key=costs.__getitem__)
    return first if costs[first] < costs[best] * _LEAST_GAIN or not costs[best] else best


def _tell(totals: dict[int, dict[Any, float]], candidates: tuple[Way, Way]) -> str:
    parts = []
    for num_rows, seconds in totals.items():
        if not seconds[None]:  # there was no time for it
            continue
        first, second = (f"{way.__name__} {seconds[way] * 1000:.1f}" for way in candidates)
        parts.append(f"{num_rows} rows {first}, {second}, chosen {seconds[None] * 1000:.1f} ms")
    return "; ".join(parts)


def _seconds(way: Way, layers: Sequence[Any], num_rows: int) -> float:
    """The least time that one call for each of the layers took."""
    # A thread's own time leaves out what other processes took, but knows of no other thread's work.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    dtype = getattr(layers[0], "scale", layers[0].weight).dtype
    rows = torch.ones(num_rows, layers[0].in_features, dtype=dtype)
    least = float("inf")
    with torch.inference_mode():
        for number in range(1 + _NUM_ROUNDS):
            started = clock()
            for layer in layers:
                way(layer, rows)
            seconds = clock() - started
            if number or seconds > _LONG_SECONDS * len(layers):  # the first call also prepares
                least = min(least, seconds)
            if seconds > _LONG_SECONDS * len(layers):
                break
    return least
