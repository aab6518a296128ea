"""The wait of each place in a line, from rows. Each process looks at a queue's rows once a second at most.

Knows rows; the arithmetic is the forecast's.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Sum

from generation import forecast, instants, overview
from generation.models import Job

NUM_RECENT = 50
RECENT = timedelta(hours=1)
FRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Known:
    """What one queue's forecast is made from, and when it was read (monotonic)."""

    durations: Sequence[float]
    elapsed: Sequence[float]
    slots: int
    read_at: float


_known: dict[str, Known] = {}


def waits(queue_name: str, num_waiting: int) -> list[int]:
    """Seconds, rounded to two digits, until the first, second, … in line will start; empty where nothing is known."""
    known = _known.get(queue_name)
    if known is None or time.monotonic() - known.read_at > FRESH_SECONDS:
        known = _known[queue_name] = _read(queue_name)
    since = time.monotonic() - known.read_at
    elapsed = [seconds + since for seconds in known.elapsed]
    return [_rounded(seconds) for seconds in forecast.waits(known.durations, elapsed, known.slots, num_waiting)]


def wait_at(queue_name: str, position: int) -> int | None:
    """Seconds until that place in line will start; None where nothing is known."""
    found = waits(queue_name, position)
    return found[-1] if found else None


def _read(queue_name: str) -> Known:
    now = instants.now()
    jobs = Job.objects.filter(queue=queue_name)
    # Those that never ran would take the places of those that did.
    ended = jobs.filter(ended_at__gte=now - RECENT, started_at__isnull=False).order_by("-ended_at")
    spans = ended.values_list("started_at", "ended_at")[:NUM_RECENT]
    running = jobs.filter(state=Job.State.RUNNING).values_list("started_at", flat=True)
    workers = overview.live_workers().filter(queue=queue_name, draining=False)
    return Known(
        durations=[max(0.0, (end - start).total_seconds()) for start, end in spans if start and end],
        elapsed=[max(0.0, (now - start).total_seconds()) for start in running if start],
        slots=workers.aggregate(slots=Sum("slots", default=0))["slots"],
        read_at=time.monotonic(),
    )


def _rounded(seconds: float) -> int:
    """Two digits: more would promise what nobody knows."""
    whole = max(0, round(seconds))
    step = int(10 ** max(0, len(str(whole)) - 2))
    return round(whole / step) * step
