"""What a reader needs of a job's row, read without blocking the event loop.

Database calls of the web's sockets run in threads of their own, few and bounded: a slow query neither freezes other
sockets nor opens a connection for each.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from channels.db import DatabaseSyncToAsync

from generation import estimates, line
from generation.models import Job, Queue

T = TypeVar("T")

USAGE, DROPPED = ("prompt_tokens", "completion_tokens", "cached_tokens"), "dropped_messages"

NEWS_SECONDS, NEWS_SHARE = 5.0, 0.25
"""By how much a forecast of the wait must have changed to be sent again."""

_threads = ThreadPoolExecutor(8, thread_name_prefix="socket-database")


async def in_database(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a synchronous call that uses the database, in one of this process's few threads for it."""
    bound = DatabaseSyncToAsync(call, thread_sensitive=False, executor=_threads)
    result: T = await bound(*args, **kwargs)
    return result


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands in line. `eta_seconds`: until its start, None where nobody can tell."""

    position: int
    size: int
    paused: bool = False
    eta_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class SaidPlace:
    """What a reader was told, and when (monotonic). A page counts the seconds down by itself."""

    place: Place
    said_at: float

    def is_news(self, now: Place) -> bool:
        """Whether more has changed than time alone changes."""
        said = self.place
        if (now.position, now.size, now.paused) != (said.position, said.size, said.paused):
            return True
        if now.eta_seconds is None or said.eta_seconds is None:
            return now.eta_seconds is not said.eta_seconds
        due = max(0.0, said.eta_seconds - (time.monotonic() - self.said_at))
        return abs(now.eta_seconds - due) > max(NEWS_SECONDS, NEWS_SHARE * due)


@dataclass(frozen=True, slots=True)
class JobRow:
    id: UUID
    queue_id: str
    state: str
    epoch: int
    attempt: int
    origin: int
    last_seq: int
    finish_reason: str
    error_code: str
    error_message: str
    usage: dict[str, int]
    timings: dict[str, float]
    waited_seconds: float
    text: str = ""

    @property
    def is_final(self) -> bool:
        return self.state in Job.FINAL

    def changed_from(self, other: "JobRow") -> bool:
        return (self.state, self.epoch) != (other.state, other.epoch)

    async def place(self) -> Place:
        return await in_database(_place, self.id, self.queue_id)

    def end_frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = {"type": self.state, "seq": self.last_seq}
        if self.state == "finished":
            frame |= {"reason": self.finish_reason, "usage": self.usage, "timings": self.timings}
        elif self.state == "failed":
            frame |= {"code": self.error_code, "message": self.error_message}
        elif self.state == "expired":
            del frame["seq"]
            frame["message"] = self.error_message
        return frame


def usage_of(counts: Mapping[str, int]) -> dict[str, int]:
    """As an end's frame carries it: what was dropped only where something was."""
    usage = {name: counts[name] for name in USAGE}
    return usage | {DROPPED: counts[DROPPED]} if counts[DROPPED] else usage


def _place(job_id: UUID, queue_id: str) -> Place:
    job = Job.objects.only("order_key", "arrival", "queue_id").get(pk=job_id)
    paused = Queue.objects.filter(pk=queue_id, paused=True).exists()
    size = line.waiting(queue_id).count()
    position = line.position_of(job)
    eta_seconds = None if paused else estimates.wait_at(queue_id, position)
    return Place(position, max(size, position), paused, eta_seconds)


def places(waiting: Mapping[str, Iterable[UUID]]) -> dict[UUID, Place]:
    """Of these waiting jobs, given by queue; without those that wait no longer."""
    paused = dict(Queue.objects.filter(pk__in=waiting).values_list("pk", "paused"))
    found = {}
    for name, job_ids in waiting.items():
        positions = line.positions(name)
        etas = [] if paused.get(name) else estimates.waits(name, len(positions))
        for job_id in job_ids:
            if position := positions.get(job_id):
                eta_seconds = etas[position - 1] if etas else None
                found[job_id] = Place(position, len(positions), paused.get(name, False), eta_seconds)
    return found


_FIELDS = [
    "id",
    "queue_id",
    "state",
    "epoch",
    "attempt",
    "origin",
    "last_seq",
    "finish_reason",
    "error_code",
    "error_message",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "dropped_messages",
    "timings",
    "queued_at",
    "started_at",
]


def job_rows(job_ids: Iterable[UUID], *, with_text: bool = False) -> dict[UUID, JobRow]:
    fields = [*_FIELDS, "text"] if with_text else _FIELDS
    return {row["id"]: _row(row) for row in Job.objects.filter(pk__in=list(job_ids)).values(*fields)}


async def read_row(job_id: UUID, *, with_text: bool = False) -> JobRow | None:
    rows = await in_database(job_rows, [job_id], with_text=with_text)
    return rows.get(job_id)


def _row(row: dict[str, Any]) -> JobRow:
    usage = usage_of({name: row.pop(name) for name in (*USAGE, DROPPED)})
    queued_at, started_at = row.pop("queued_at"), row.pop("started_at")
    waited = (started_at - queued_at).total_seconds() if started_at and started_at > queued_at else 0.0
    return JobRow(usage=usage, waited_seconds=round(waited, 3), **row)
