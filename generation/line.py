"""Who is next: the order of one queue's waiting jobs. It knows no engine, broker or browser.

Virtual time is a whole number in the Queue row; every accepted job moves it by one, so it advances whoever
comes. A job's `arrival` is the time at its submit. Its start (P. Goyal, H. M. Vin, H. Cheng, "Start-time Fair
Queuing", SIGCOMM 1996) is its arrival or, behind another waiting job of the same person and priority, that
job's start + TURN. `order_key` = start - head start of its priority; the lowest is first, ties go by arrival.
A claim moves virtual time up to the start of the job it took, so that nobody saves up turns while away.

Bound: a later job passes this one only if its arrival < start + (its head start - mine), so at most
(start - arrival) + (largest head start - mine) later jobs ever do: none passes a person's only job unless it has
a larger head start, and (r - 1) * TURN pass the r-th of a person's r waiting jobs.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max, Min, Q, QuerySet

from generation import conf, statements
from generation.models import Job, Priority, Queue

TURN = 100
"""Later arrivals that may pass a person's second waiting job, then the third, and so on."""

HEAD_START = {Priority.BATCH: 0, Priority.NORMAL: 200, Priority.STAFF: 400}

# SQLite's write lock is unfair: of several saturating threads one does nearly all and the others time out.
_sqlite_turnstile = threading.RLock()


@contextmanager
def changing(queue_name: str) -> Iterator[Queue]:
    """A transaction that holds the Queue row's lock, always the first lock taken; makes the row if it is new."""
    # Inside a caller's transaction SQLite's write lock is held already; waiting for ours too could deadlock.
    alone = connection.vendor == "sqlite" and not connection.in_atomic_block
    if alone:
        _sqlite_turnstile.acquire()
    try:
        with transaction.atomic():
            yield _locked(queue_name)
    finally:
        if alone:
            _sqlite_turnstile.release()


def _locked(queue_name: str) -> Queue:
    queue = statements.locked(queue_name)
    while queue is None:
        Queue.objects.bulk_create([Queue(name=queue_name)], ignore_conflicts=True)
        queue = statements.locked(queue_name)
    return queue


def waiting(queue_name: str) -> QuerySet[Job]:
    """The line, first in line first."""
    return Job.objects.filter(queue_id=queue_name, state=Job.State.QUEUED).order_by("order_key", "arrival")


def max_wait_seconds(queue: Queue) -> float:
    return conf.max_wait_seconds() if queue.max_wait_seconds is None else queue.max_wait_seconds


def overdue(queue: Queue, now: datetime) -> QuerySet[Job]:
    """Those who have waited longer than their queue allows without ever starting."""
    oldest = now - timedelta(seconds=max_wait_seconds(queue))
    return waiting(queue.name).filter(first_started_at=None, queued_at__lt=oldest)


def is_overdue(job: Job, queue: Queue, now: datetime) -> bool:
    return job.first_started_at is None and (now - job.queued_at).total_seconds() > max_wait_seconds(queue)


def start_of(job: Job) -> int:
    return job.order_key + HEAD_START[Priority(job.priority)]


def place_new(queue: Queue, user_id: Any, priority: Priority) -> tuple[int, int]:
    """(arrival, order_key) of a job that joins now; moves virtual time. Needs the queue's lock."""
    arrival = queue.virtual_time + 1
    last = waiting(queue.name).filter(user_id=user_id, priority=priority).aggregate(key=Max("order_key"))["key"]
    start = arrival if last is None else max(arrival, last + HEAD_START[priority] + TURN)
    advance(queue, arrival)
    return arrival, start - HEAD_START[priority]


def advance(queue: Queue, virtual_time: int) -> None:
    if virtual_time > queue.virtual_time:
        queue.virtual_time = virtual_time
        statements.move_clock(queue)


def give_back(job: Job) -> None:
    """Hand a cancelled waiting job's turn to its owner's next one, and so on; never before a job's own arrival."""
    turn = start_of(job)
    moved = []
    own = waiting(job.queue_id).filter(user_id=job.user_id, priority=job.priority).order_by("arrival")
    for other in own.only("id", "arrival", "order_key", "priority"):
        start = max(other.arrival, turn)
        if other.arrival > job.arrival and start < start_of(other):
            other.order_key = start - HEAD_START[Priority(other.priority)]
            moved.append(other)
        turn = max(turn, start_of(other) + TURN)
    Job.objects.bulk_update(moved, ["order_key"], batch_size=500)


def front_key(queue: Queue) -> int:
    """An order key before all that wait and all that may come, whatever their priority."""
    newest = queue.virtual_time - max(HEAD_START.values())
    first = waiting(queue.name).aggregate(key=Min("order_key"))["key"]
    return min(newest, newest if first is None else first) - 1


def positions(queue_name: str) -> dict[UUID, int]:
    """Every waiting job's position: 1 + the jobs that will start before it."""
    ids = waiting(queue_name).values_list("pk", flat=True)
    return {job_id: place for place, job_id in enumerate(ids, start=1)}


def places(jobs: Sequence[Job]) -> dict[UUID, int]:
    """The positions of these waiting jobs of one queue, whose line may be long; read from its index alone."""
    if not jobs:
        return {}
    ahead = waiting(jobs[0].queue_id).filter(order_key__lte=max(job.order_key for job in jobs))
    keys = list(ahead.values_list("order_key", "arrival"))
    return {job.pk: bisect_left(keys, (job.order_key, job.arrival)) + 1 for job in jobs}


def position_of(job: Job) -> int:
    before = Q(order_key__lt=job.order_key) | Q(order_key=job.order_key, arrival__lt=job.arrival)
    return waiting(job.queue_id).filter(before).count() + 1
