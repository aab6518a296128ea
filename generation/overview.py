"""What runs and what waits, as numbers for the health pages, the metrics, the admin and the command line.

Reads rows only, in a fixed number of queries however many jobs there are. Whether a worker is alive is judged
by the database server's clock, the one that its lease is written with.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import (
    BooleanField,
    Case,
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Now

from generation import conf
from generation.models import Job, Queue, Worker


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """One queue; `max_running` is what its live workers that aren't draining have slots for."""

    name: str
    paused: bool
    running: int
    waiting: int
    max_running: int
    max_waiting: int
    num_workers: int
    busy: int


def workers() -> QuerySet[Worker]:
    """Every worker with `live` (its lease holds) and `silence` (time since it was last seen)."""
    silence = ExpressionWrapper(Now() - F("last_seen_at"), output_field=DurationField())
    live = Case(When(_is_live(), then=Value(True)), default=Value(False), output_field=BooleanField())
    return Worker.objects.annotate(silence=silence, live=live)


def live_workers() -> QuerySet[Worker]:
    return Worker.objects.filter(_is_live()).order_by("queue", "hostname", "started_at")


def _is_live() -> Q:
    return Q(stopped_at=None, last_seen_at__gte=Now() - timedelta(seconds=conf.lease_seconds()))


def queues() -> QuerySet[Queue]:
    """Every queue with `waiting` and `running`, each counted within its own stretch of one index."""

    def count(state: Job.State) -> Coalesce:
        jobs = Job.objects.filter(queue=OuterRef("pk"), state=state).order_by().values("queue")
        num = Subquery(jobs.annotate(num=Count("pk")).values("num"))
        return Coalesce(num, 0, output_field=IntegerField())

    counts = {"waiting": count(Job.State.QUEUED), "running": count(Job.State.RUNNING)}
    return Queue.objects.annotate(**counts).order_by("name")


def waited(job: Job, now: datetime) -> timedelta:
    """How long it has been in line, if it waits; else how long it was before it first started or ended."""
    if job.state == Job.State.QUEUED:
        return now - job.queued_at
    if job.first_started_at is None:
        return (job.ended_at or now) - job.queued_at
    # Put in line again later than that, it was handed over; before that, it failed once and was requeued.
    since = job.queued_at if job.queued_at <= job.first_started_at else job.created_at
    return job.first_started_at - since


def tokens_per_second(job: Job) -> float | None:
    """Speed between the first token and the last, of the last claim where several wrote the reply."""
    timings = job.timings or {}
    seconds = (timings.get("total") or 0) - (timings.get("first_token") or 0)
    tokens = timings.get("tokens", job.completion_tokens)
    return (tokens - 1) / seconds if tokens > 1 and seconds > 0 else None


def queue_loads(live: list[Worker]) -> list[QueueLoad]:
    """The load of every queue that has a configured model, one of these live workers or an unfinished job.

    A queue's row stays when its models are configured no longer, for its old jobs.
    """
    rows = {queue.name: queue for queue in queues()}
    unfinished = {name for name, row in rows.items() if row.waiting or row.running}  # type: ignore[attr-defined]
    names = {*unfinished, *(spec.queue for spec in conf.models().values()), *(worker.queue for worker in live)}
    loads = []
    for name in sorted(names):
        row = rows.get(name)
        mine = [worker for worker in live if worker.queue == name]
        loads.append(
            QueueLoad(
                name=name,
                paused=row.paused if row else False,
                running=getattr(row, "running", 0),
                waiting=getattr(row, "waiting", 0),
                max_running=sum(worker.slots for worker in mine if not worker.draining),
                max_waiting=row.max_size if row and row.max_size is not None else conf.max_queue_size(),
                num_workers=len(mine),
                busy=sum(worker.busy for worker in mine),
            )
        )
    return loads
