"""A line in simulated time, to measure how honest its forecast is: `python -m tests.generation.line_simulation`.

People come at random (Poisson), replies take lognormal times, and each start is compared with what was forecast when
its person came.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass
from statistics import mean, median

from generation.forecast import waits

RECENT = 50


@dataclass(frozen=True, slots=True)
class Kind:
    """`load` is the share of the slots' time that arrivals need; `spread` the sigma of the lognormal times."""

    name: str
    slots: int
    load: float
    spread: float


KINDS = (
    Kind("4 slots, load 0.9, replies alike", 4, 0.9, 0.3),
    Kind("4 slots, load 0.9, replies mixed", 4, 0.9, 0.8),
    Kind("16 slots, load 0.95, replies mixed", 16, 0.95, 0.8),
    Kind("8 slots, load 1.5 (a rush), replies mixed", 8, 1.5, 0.8),
)


def simulate(kind: Kind, num_people: int, chance: random.Random) -> list[tuple[float, float]]:
    """(forecast, wait) in seconds of everyone who had to wait and got a forecast."""
    now, mean_seconds = 0.0, 20.0
    recent: deque[float] = deque(maxlen=RECENT)
    running: list[tuple[float, float]] = []  # (end, start)
    line: deque[tuple[float, float, float | None]] = deque()  # (arrival, duration, forecast)
    pairs = []

    def begin(arrival: float, duration: float, forecast: float | None, at: float) -> None:
        heapq.heappush(running, (at + duration, at))
        if forecast is not None:
            pairs.append((forecast, at - arrival))

    for _ in range(num_people):
        now += chance.expovariate(kind.load * kind.slots / mean_seconds)
        while running and running[0][0] <= now:
            end, start = heapq.heappop(running)
            recent.append(end - start)
            if line:
                begin(*line.popleft(), end)
        duration = mean_seconds * chance.lognormvariate(-(kind.spread**2) / 2, kind.spread)
        if len(running) < kind.slots:
            begin(now, duration, None, now)
        else:
            found = waits(recent, [now - start for _, start in running], kind.slots, len(line) + 1)
            line.append((now, duration, found[-1] if found else None))
    return pairs


def errors(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """(bias, median error, share within a third) of the forecasts, relative to the mean wait or to each wait."""
    bias = mean(forecast - wait for forecast, wait in pairs) / mean(wait for _, wait in pairs)
    relative = [abs(forecast - wait) / max(wait, 1.0) for forecast, wait in pairs]
    return bias, median(relative), mean(error <= 1 / 3 for error in relative)


def main() -> None:
    print(f"{'':44}{'waits':>8}{'mean s':>8}{'bias':>8}{'median error':>14}{'within 1/3':>12}")
    for kind in KINDS:
        pairs = simulate(kind, 20_000 if kind.load < 1 else 1_000, random.Random(1))
        bias, middle, near = errors(pairs)
        seconds = mean(wait for _, wait in pairs)
        print(f"{kind.name:44}{len(pairs):>8}{seconds:>8.1f}{bias:>+8.1%}{middle:>14.1%}{near:>12.1%}")


if __name__ == "__main__":
    main()
