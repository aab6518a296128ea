"""What a reader needs of a job's row, read without blocking the event loop.

Database calls of the web's sockets run in threads of their own, few and bounded: a slow query neither freezes other
sockets nor opens a connection for each.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from channels.db import DatabaseSyncToAsync

from generation import line
from generation.models import Job, Queue

T = TypeVar("T")

_threads = ThreadPoolExecutor(8, thread_name_prefix="socket-database")


async def in_database(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a synchronous call that uses the database, in one of this process's few threads for it."""
    bound = DatabaseSyncToAsync(call, thread_sensitive=False, executor=_threads)
    result: T = await bound(*args, **kwargs)
    return result


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

    async def place(self) -> tuple[int, int, bool]:
        """(position, size of the line, paused)."""
        return await in_database(_place, self.id, self.queue_id)

    def end_frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = {"type": self.state, "seq": self.last_seq}
        if self.state == "finished":
            frame |= {"reason": self.finish_reason, "usage": self.usage, "timings": self.timings}
        elif self.state == "failed":
            frame |= {"code": self.error_code, "message": self.error_message}
        elif self.state == "expired":
            del frame["seq"]
        return frame


def _place(job_id: UUID, queue_id: str) -> tuple[int, int, bool]:
    job = Job.objects.only("order_key", "arrival", "queue_id").get(pk=job_id)
    paused = Queue.objects.filter(pk=queue_id, paused=True).exists()
    size = line.waiting(queue_id).count()
    position = line.position_of(job)
    return position, max(size, position), paused


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
    usage = {name: row.pop(name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
    queued_at, started_at = row.pop("queued_at"), row.pop("started_at")
    waited = (started_at - queued_at).total_seconds() if started_at and started_at > queued_at else 0.0
    return JobRow(usage=usage, waited_seconds=round(waited, 3), **row)
