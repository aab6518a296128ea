"""What an operator does to chosen rows, and the one line that tells how many it did, how many it didn't and why.

Every change goes through `queue.py`, which decides; what a row was when the page was shown decides nothing.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from generation import queue
from generation.admin.read_only import ReadOnlyAdmin
from generation.models import Job, Queue, Worker

MAX_AT_ONCE = 500
"""Each row is a transaction of its own, and a page must answer before a browser or a proxy gives up."""

DONE = (
    *("cancelled", "asked to stop", "in line again", "moved to the front"),
    *("paused", "resumed", "draining", "taking jobs again"),
)


class SteeringAdmin(ReadOnlyAdmin):
    """A list whose actions change rows one by one; each change is noted in the row's history."""

    def steer(self, request: HttpRequest, rows: QuerySet[Any], act: Callable[[Any], str]) -> None:
        """`act` changes a row, if it can, and says in words what became of it."""
        chosen = list(rows[: MAX_AT_ONCE + 1])
        outcomes: Counter[str] = Counter()
        for row in chosen[:MAX_AT_ONCE]:
            try:
                outcome = act(row)
            except Job.DoesNotExist:
                outcome = "deleted meanwhile"
            outcomes[outcome] += 1
            if outcome in DONE:
                self.log_change(request, row, f"{outcome.capitalize()}.")
        first_the_done = [*filter(outcomes.__contains__, DONE), *sorted(outcomes.keys() - set(DONE))]
        text = ", ".join(f"{outcomes[what]} {what}" for what in first_the_done)
        if len(chosen) > MAX_AT_ONCE:
            text += f". No more than {MAX_AT_ONCE} are taken at once: choose again for the rest"
        all_done = len(chosen) <= MAX_AT_ONCE and outcomes.keys() <= set(DONE)
        name = str(self.opts.verbose_name_plural).capitalize()
        self.message_user(request, f"{name}: {text}.", messages.SUCCESS if all_done else messages.WARNING)


def _rows(jobs: QuerySet[Job], *order: str) -> QuerySet[Job]:
    return jobs.order_by(*order).defer("messages", "params", "text", "error_traceback")


class JobSteering(SteeringAdmin):
    actions = ("cancel", "requeue", "move_to_front")

    @admin.action(description="Cancel the selected jobs", permissions=["change"])
    def cancel(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        """Waiting ones are gone at once; running ones are asked to stop and keep their text."""
        # A person's last one first: no turn is handed on to one that is cancelled next.
        self.steer(request, _rows(jobs, "-arrival"), _cancel)

    @admin.action(description="Put the selected failed jobs back in line", permissions=["change"])
    def requeue(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self.steer(request, _rows(jobs, "arrival"), _requeue)

    @admin.action(description="Move the selected waiting jobs to the front", permissions=["change"])
    def move_to_front(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        """They keep their order among each other: whichever is moved last is first."""
        self.steer(request, _rows(jobs, "-order_key", "-arrival"), _move_to_front)


def _cancel(job: Job) -> str:
    if job.is_final:
        return "had already ended"
    if not queue.cancel(job):
        return "asked to stop"
    return "cancelled" if job.state == Job.State.CANCELLED else "had already ended"


def _requeue(job: Job) -> str:
    return "in line again" if queue.requeue(job) else f"not failed but {_state_now(job)}"


def _move_to_front(job: Job) -> str:
    return "moved to the front" if queue.move_to_front(job) else f"not waiting but {_state_now(job)}"


def _state_now(job: Job) -> str:
    job.refresh_from_db(fields=["state"])
    return str(job.state)


class QueueSteering(SteeringAdmin):
    actions = ("pause", "resume")

    @admin.action(description="Pause the selected queues", permissions=["change"])
    def pause(self, request: HttpRequest, queues: QuerySet[Queue]) -> None:
        """Running jobs go on; whoever waits is told."""
        self.steer(request, queues, lambda row: "paused" if queue.pause(row.name) else "paused already")

    @admin.action(description="Resume the selected queues", permissions=["change"])
    def resume(self, request: HttpRequest, queues: QuerySet[Queue]) -> None:
        self.steer(request, queues, lambda row: "resumed" if queue.resume(row.name) else "not paused")


class WorkerSteering(SteeringAdmin):
    actions = ("drain", "undrain")

    @admin.action(description="Drain the selected workers: they take no new jobs", permissions=["change"])
    def drain(self, request: HttpRequest, workers: QuerySet[Worker]) -> None:
        self.steer(request, workers, _drain)

    @admin.action(description="End the drain of the selected workers", permissions=["change"])
    def undrain(self, request: HttpRequest, workers: QuerySet[Worker]) -> None:
        self.steer(request, workers, _undrain)


def _drain(worker: Worker) -> str:
    return "draining" if queue.drain(worker) else _has_stopped(worker) or "draining already"


def _undrain(worker: Worker) -> str:
    return "taking jobs again" if queue.undrain(worker) else _has_stopped(worker) or "not draining"


def _has_stopped(worker: Worker) -> str:
    worker.refresh_from_db(fields=["stopped_at"])
    return "stopped" if worker.stopped_at else ""
