"""Linear layers on a CPU, each computed in the way that a short measurement at load finds fastest.

Knows nothing of the engine. Which way wins depends on the processor, the dtype, the shape and the number of rows,
so none is taken for granted. Letters: N rows · I inputs · O outputs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Way = Callable[[Any, torch.Tensor], torch.Tensor]  # a layer and (N, I) → (N, O)
Ways = tuple[Way, Way, Way, Way]  # for each of ROWS, and for all of them at once
Measure = Callable[[Way, Sequence[Any], int], float]  # a way, layers of one shape and N → seconds
Shape = tuple[int, int]  # (O, I)

# Decoding one or two sequences, decoding several, computing a chunk of a prompt.
ROWS = (1, 8, 64)
_CLASS_ENDS = (2, 16)

_BUDGET_SECONDS = 2.0
_LONG_SECONDS = 0.02  # a call that takes longer is not repeated, nor tried with more rows
_LEAST_GAIN = 1.05
_NUM_SAMPLES = 4  # layers of one shape that are called in turn, lest one stays in the processor's cache
_MOST_COPIED_BYTES = 2**28
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
    """Change a model on a CPU in place; what was found, for the log, or None where there is nothing to choose.

    A weight's numbers are put into the other order, column after column, where that makes it faster: multiplying few
    rows by it then goes through memory in one direction.
    """
    if model.device.type != "cpu":
        return None
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    if not layers:
        return None
    candidates = (plain, transposed)
    by_shape = _by_shape(layers)
    by_rows = _find(by_shape, candidates, measure)
    by_columns = _find(_copies_by_columns(by_shape), candidates, measure)
    said = by_rows.tell(candidates)
    for shape, alike in by_shape.items():
        found = by_rows
        if by_columns.gains(shape, by_rows):
            found = by_columns
            said += f"; {shape[0]:,} × {shape[1]:,} by columns"
            for layer in alike:
                layer.weight.data = _by_columns(layer.weight)
        if (ways := found.ways(shape, candidates)) != (plain,) * len(ways):
            for layer in alike:
                layer.__class__ = _ChosenLinear
                layer.ways = ways
    return said


def choose(
    layers: Sequence[Any], candidates: tuple[Way, Way], measure: Measure | None = None
) -> tuple[list[Ways], str]:
    """For each layer its ways, and a line that says which won. The first candidate wins where none was timed.

    It takes a second or two; layers of one shape are taken to be alike.
    """
    by_shape = _by_shape(layers)
    found = _find(by_shape, candidates, measure)
    ways = {shape: found.ways(shape, candidates) for shape in by_shape}
    return [ways[layer.out_features, layer.in_features] for layer in layers], found.tell(candidates)


@dataclass(slots=True)
class _Found:
    """What was timed: seconds of one layer of a shape with a number of rows, by way."""

    counts: dict[Shape, int]
    times: dict[tuple[Shape, int], dict[Way, float]] = field(default_factory=dict)

    def ways(self, shape: Shape, candidates: tuple[Way, Way]) -> Ways:
        timed = [self.times.get((shape, num_rows)) for num_rows in ROWS]
        few, several, many = (_best(each) if each else candidates[0] for each in timed)
        losses = {way: sum(each[way] / min(each.values()) for each in timed if each) for way in candidates}
        return few, several, many, _best(losses)

    def gains(self, shape: Shape, other: "_Found") -> bool:
        """Whether this is faster than another one, each at its best, on the average of the numbers of rows."""
        pairs = [(self.times.get((shape, rows)), other.times.get((shape, rows))) for rows in ROWS]
        ratios = [min(theirs.values()) / min(mine.values()) for mine, theirs in pairs if mine and theirs]
        return sum(ratios) > len(ratios) * _LEAST_GAIN

    def tell(self, candidates: tuple[Way, Way]) -> str:
        parts = []
        for num_rows in ROWS:
            timed = [(self.counts[shape], each) for (shape, rows), each in self.times.items() if rows == num_rows]
            if timed:  # else there was no time for it
                first, second = (
                    f"{way.__name__} {sum(count * each[way] for count, each in timed) * 1000:.1f}" for way in candidates
                )
                best = sum(count * each[_best(each)] for count, each in timed)
                parts.append(f"{num_rows} rows {first}, {second}, chosen {best * 1000:.1f} ms")
        return "; ".join(parts)


def _find(by_shape: dict[Shape, list[Any]], candidates: tuple[Way, Way], measure: Measure | None) -> _Found:
    measure = measure or _seconds
    until = time.monotonic() + _BUDGET_SECONDS
    found = _Found({shape: len(alike) for shape, alike in by_shape.items()})
    slow: set[Shape] = set()
    for num_rows in sorted(ROWS, key=lambda rows: rows != ROWS[1]):  # the commonest first
        for shape in _heaviest(by_shape):
            if time.monotonic() > until or (shape in slow and num_rows > ROWS[1]):
                continue
            alike = by_shape[shape]
            sample = alike[:: -(-len(alike) // _NUM_SAMPLES)]
            times = {way: measure(way, sample, num_rows) / len(sample) for way in candidates}
            if min(times.values()) > _LONG_SECONDS:
                slow.add(shape)
            found.times[shape, num_rows] = times
    return found


def _by_shape(layers: Sequence[Any]) -> dict[Shape, list[Any]]:
    shapes: dict[Shape, list[Any]] = {}
    for layer in layers:
        shapes.setdefault((layer.out_features, layer.in_features), []).append(layer)
    return shapes


def _by_columns(weight: torch.Tensor) -> torch.Tensor:  # (O, I), both
    return weight.detach().t().contiguous().t()


def _heaviest(by_shape: dict[Shape, list[Any]]) -> list[Shape]:
    """Shapes by what their layers take together, the most first."""
    return sorted(by_shape, key=lambda shape: -len(by_shape[shape]) * shape[0] * shape[1])


def _copies_by_columns(by_shape: dict[Shape, list[Any]]) -> dict[Shape, list[Any]]:
    """A few layers of each shape, to time them, as far as there is room for copies."""
    room = _MOST_COPIED_BYTES
    copies: dict[Shape, list[Any]] = {}
    for shape in _heaviest(by_shape):
        for layer in by_shape[shape][:_NUM_SAMPLES]:
            if layer.weight.nbytes <= room:
                room -= layer.weight.nbytes
                weight = _by_columns(layer.weight)
                copy = SimpleNamespace(weight=weight, bias=layer.bias, in_features=shape[1], out_features=shape[0])
                copies.setdefault(shape, []).append(copy)
    return copies


def _best(costs: dict[Way, float]) -> Way:
    """The cheapest, but the first where little is gained."""
    first, best = next(iter(costs)), min(costs, key=costs.__getitem__)
    return first if costs[first] < costs[best] * _LEAST_GAIN or not costs[best] else best


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
