"""Whether a line is full, without counting a long one again for every prompt that joins it.

A count stays a proof for a while. What has joined since raised the queue's virtual time by at least one each, and only
a job that ran at the time of the count can have come back. So

    waiting now <= waiting then + running then + (virtual time now - virtual time then)

and as long as that is below the limit nothing needs to be counted. Near the limit every prompt counts, so that it is
exact.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction

from generation import line
from generation.models import Job, Queue

LONG = 1000
"""A shorter line is counted in less time than anything else that a submit does."""

FRESH_SECONDS = 1.0
"""Rows that somebody wrote by hand are noticed after this."""


@dataclass(frozen=True, slots=True)
class Count:
    """`most` is how many waited or ran."""

    at: float
    virtual_time: int
    most: int


class LineSizes:
    """What this process knows of the lines; for all its threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, long: int = LONG) -> None:
        self._clock = clock
        self._long = long
        self._counts: dict[str, Count] = {}

    def size_if_full(self, queue: Queue, limit: int) -> int | None:
        """How many wait if that is the limit or more, else None. Needs the queue's lock."""
        if self._has_room(queue, limit):
            return None
        size = line.waiting(queue.name).count()
        if size >= self._long:
            running = Job.objects.filter(queue=queue, state=Job.State.RUNNING).count()
            count = Count(self._clock(), queue.virtual_time, size + running)
            # A transaction that is rolled back may have counted without what it had taken out of the line.
            transaction.on_commit(lambda: self._counts.__setitem__(queue.name, count))
        return size if size >= limit else None

    def _has_room(self, queue: Queue, limit: int) -> bool:
        count = self._counts.get(queue.name)
        if count is None or self._clock() - count.at > FRESH_SECONDS or queue.virtual_time < count.virtual_time:
            return False
        return count.most + queue.virtual_time - count.virtual_time < limit


sizes = LineSizes()
