"""How long those in line will wait: from how long recent replies took and how long the running ones have taken.

Pure arithmetic; it knows no rows and no clock. The forecast lets the line run on as it stands: nobody comes, nobody
leaves. The k-th in line starts when k ends are to be expected. A slot's first end comes when a recent reply that took
at least as long as this one so far would have ended (the residual life); from then on ends come at the renewal rate,
one per mean duration, after a pause that is the longer the more alike they are (D. R. Cox, "Renewal Theory", 1962,
chapters 4 and 5). Half of Cox's correction is the pause that a simulated line bears out best.
"""

from collections.abc import Sequence
from statistics import fmean, pvariance

FEWEST_SAMPLES = 5
"""With fewer replies to judge by, nothing is known."""


def waits(durations: Sequence[float], elapsed: Sequence[float], slots: int, num_waiting: int) -> list[float]:
    """Seconds until the first, second, … in line will start; empty where nothing is known.

    `durations` are seconds that recent replies held a slot, `elapsed` those of the running ones so far.
    """
    if slots < 1 or len(durations) < FEWEST_SAMPLES or not (mean := fmean(durations)):
        return []
    if slots == 1 and len(elapsed) == 1:
        first = fmean(_residuals(durations, elapsed[0], mean))
        return [first + number * mean for number in range(num_waiting)]
    free = max(0, slots - len(elapsed))
    pause = mean * max(0.0, 1 - pvariance(durations, mean) / mean**2) / 4
    # Each change of the expected number of ends: (when, by how much at once, by how much a second from then on).
    changes: list[tuple[float, float, float]] = []
    for ends in [[0.0]] * free + [_residuals(durations, seconds, mean) for seconds in elapsed]:
        for seconds in ends:
            changes.append((seconds, 1 / len(ends), 0.0))
            changes.append((seconds + pause, 0.0, 1 / len(ends) / mean))
    changes.sort()
    return _instants_of(changes, num_waiting)


def _residuals(durations: Sequence[float], elapsed: float, mean: float) -> list[float]:
    """What a reply that has run for so long may still take; past the longest known one, as if it had just begun."""
    return [duration - elapsed for duration in durations if duration > elapsed] or [mean]


def _instants_of(changes: Sequence[tuple[float, float, float]], num_ends: int) -> list[float]:
    """When 1, 2, … ends are to be expected."""
    found: list[float] = []
    now = expected = rate = 0.0
    for when, jump, change_of_rate in [*changes, (float("inf"), 0.0, 0.0)]:
        while len(found) < num_ends and rate and expected + rate * (when - now) >= len(found) + 1:
            now, expected = now + (len(found) + 1 - expected) / rate, float(len(found) + 1)
            found.append(now)
        expected += rate * (when - now) if rate else 0.0
        now = when
        expected += jump
        rate += change_of_rate
        while len(found) < num_ends and expected >= len(found) + 1 - 1e-9:
            found.append(now)
        if len(found) == num_ends:
            break
    return found
