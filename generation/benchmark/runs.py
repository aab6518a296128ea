"""One run: prompts that a contestant answers, and the instant of each token. Knows no model and no torch."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, quantiles
from typing import Protocol


class RunFailed(RuntimeError):
    """A contestant did not answer as it was asked to."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how many tokens to answer with, whatever they are.

    ``after`` holds it back until every request without it has that many tokens.
    """

    prompt: tuple[int, ...]
    num_new: int
    after: int = 0


@dataclass(slots=True)
class Stream:
    """What came for one request; instants are ``time.perf_counter()``."""

    submitted_at: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def first_token_seconds(self) -> float:
        return self.arrivals[0] - self.submitted_at

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


class Contestant(Protocol):
    """A way to run one model. Each prompt is given to it once, so that nothing is answered from memory."""

    name: str

    def run(self, requests: Sequence[Request]) -> list[Stream]:
        """All requests at once; returns when the last has ended. Raises RunFailed."""

    def close(self) -> None:
        """Let go of threads, in the middle of a run too."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run, or the medians of several. Tokens are counted from the first submission, prompts included."""

    tokens_per_second: float
    first_token_seconds: float  # mean over the sequences
    gap_p50_seconds: float
    gap_p99_seconds: float
    full_gap_p99_seconds: float  # of gaps while all sequences are answered; of all where that never happens


def figures(streams: Sequence[Stream]) -> Figures:
    started = min(stream.submitted_at for stream in streams)
    ended = max(stream.arrivals[-1] for stream in streams)
    gaps = [gap for stream in streams for gap in stream.gaps]
    begun = max(stream.arrivals[0] for stream in streams)
    full_until = min(stream.arrivals[-1] for stream in streams)
    return Figures(
        tokens_per_second=sum(len(stream.arrivals) for stream in streams) / (ended - started),
        first_token_seconds=fmean(stream.first_token_seconds for stream in streams),
        gap_p50_seconds=percentile(gaps, 50),
        gap_p99_seconds=percentile(gaps, 99),
        full_gap_p99_seconds=percentile(gaps_between(streams, begun, full_until) or gaps, 99),
    )


def gaps_between(streams: Sequence[Stream], start: float, end: float, *, whole: bool = True) -> list[float]:
    """Gaps that lie between two instants, whole or in part."""
    return [
        later - earlier
        for stream in streams
        for earlier, later in zip(stream.arrivals, stream.arrivals[1:], strict=False)
        if ((start <= earlier and later <= end) if whole else (start < later and earlier < end))
    ]


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def check(name: str, requests: Sequence[Request], streams: Sequence[Stream]) -> None:
    """Raises RunFailed where a contestant gave fewer or more tokens than it was asked for."""
    for request, stream in zip(requests, streams, strict=True):
        if len(stream.arrivals) != request.num_new:
            raise RunFailed(f"{name} gave {len(stream.arrivals)} tokens instead of {request.num_new}")


class Prompts:
    """Prompts that never come twice: ids of an ordinary text in random order, the same for each seed."""

    def __init__(self, ids: Sequence[int], lengths: Sequence[int], seed: int = 0) -> None:
        self._ids = sorted(set(ids))
        self._lengths = lengths
        self._random = random.Random(seed)

    def of(self, length: int) -> tuple[int, ...]:
        return tuple(self._random.choices(self._ids, k=length))

    def requests(self, number: int, num_new: int) -> list[Request]:
        """The lengths are dealt out in turn."""
        return [Request(self.of(self._lengths[index % len(self._lengths)]), num_new) for index in range(number)]
