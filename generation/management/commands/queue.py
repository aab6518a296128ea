"""`manage.py queue`: the operator's hand on the line, thin over `generation.queue`.

    queue list [QUEUE]        what waits and runs         queue cancel JOB     stop it, waiting or running
    queue pause [QUEUE]       start nothing new           queue requeue JOB    give a failed job another try
    queue resume [QUEUE]      go on                       queue front JOB      before all others
    queue drain WORKER        take nothing new            queue undrain WORKER take jobs again

A job or a worker is named by its id or the beginning of it, a worker also by its node name.
"""

from argparse import ArgumentParser
from typing import Any, TypeVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Model, QuerySet
from django.utils import timezone

from generation import overview, queue
from generation.models import Job, Worker

Row = TypeVar("Row", bound=Model)

MAX_LISTED = 50


class Command(BaseCommand):
    help = "List and steer the queue: list, pause, resume, drain, undrain, cancel, requeue, front."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = ("list", "pause", "resume", "drain", "undrain", "cancel", "requeue", "front")
        parser.add_argument("action", choices=actions)
        parser.add_argument("id", nargs="?", default="", help="a queue's name, a worker or a job")

    def handle(self, *args: Any, action: str, id: str, **options: Any) -> None:
        getattr(self, action)(id)

    def list(self, name: str) -> None:
        live = [*overview.live_workers()]
        loads = [load for load in overview.queue_loads(live) if not name or load.name == name]
        if name and not loads:
            raise CommandError(f"There is no queue {name!r}.")
        for load in loads:
            paused = ", paused" if load.paused else ""
            self.stdout.write(
                f"{load.name}: {load.running} of {load.max_running} running, {load.waiting} of "
                f"{load.max_waiting} waiting, {load.num_workers} workers{paused}"
            )
            running = Job.objects.filter(queue=load.name, state=Job.State.RUNNING).order_by("started_at")
            for job in self._shown(running):
                self._line("running", job)
            waiting = Job.objects.filter(queue=load.name, state=Job.State.QUEUED).order_by("order_key", "arrival")
            for place, job in enumerate(self._shown(waiting), start=1):
                self._line(f"{place:>7}", job)
            if load.waiting > MAX_LISTED:
                self.stdout.write(f"          and {load.waiting - MAX_LISTED:,} more")
        for worker in live:
            models = ", ".join(f"{model['name']} {model['state']}" for model in worker.models)
            draining = ", draining" if worker.draining else ""
            self.stdout.write(
                f"worker {worker.pk} {worker.hostname}: queue {worker.queue}, "
                f"{worker.busy}/{worker.slots} busy, {models or 'no model'}{draining}"
            )

    def pause(self, name: str) -> None:
        name = self._queue(name)
        was = "" if queue.pause(name) else " already"
        self.stdout.write(f"Queue {name} is paused{was}; running jobs go on.")

    def resume(self, name: str) -> None:
        name = self._queue(name)
        self.stdout.write(f"Queue {name} goes on." if queue.resume(name) else f"Queue {name} was not paused.")

    def drain(self, name: str) -> None:
        worker = self._worker(name)
        if not queue.drain(worker):
            raise CommandError(f"Worker {worker} drains already.")
        self.stdout.write(f"Worker {worker} takes no new jobs; what it runs goes on.")

    def undrain(self, name: str) -> None:
        worker = self._worker(name)
        if not queue.undrain(worker):
            raise CommandError(f"Worker {worker} doesn't drain.")
        self.stdout.write(f"Worker {worker} takes jobs again.")

    def cancel(self, name: str) -> None:
        job = self._named(Job.objects.all(), name, "job")
        if job.is_final:
            raise CommandError(f"Job {job.pk} has ended already: {job.state}.")
        if queue.cancel(job):
            self.stdout.write(f"Job {job.pk} is {job.state}.")
        else:
            self.stdout.write(f"Job {job.pk} was asked to stop; its worker ends it.")

    def requeue(self, name: str) -> None:
        job = self._named(Job.objects.all(), name, "job")
        if not queue.requeue(job):
            raise CommandError(f"Job {job.pk} is {job.state}; only a failed one can be put back in line.")
        self.stdout.write(f"Job {job.pk} is in line again.")

    def front(self, name: str) -> None:
        job = self._named(Job.objects.all(), name, "job")
        if not queue.move_to_front(job):
            raise CommandError(f"Job {job.pk} is {job.state}; only a waiting one can be moved.")
        self.stdout.write(f"Job {job.pk} is first in line.")

    def _shown(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        return jobs.select_related("user").defer("messages", "text", "error_traceback")[:MAX_LISTED]

    def _line(self, place: str, job: Job) -> None:
        seconds = overview.waited(job, timezone.now()).total_seconds()
        again = ", put back" if job.state == Job.State.QUEUED and job.first_started_at else ""
        self.stdout.write(
            f"  {place} {job.pk} {job.user.get_username()} {job.model}, waited {max(0.0, seconds):.0f} s{again}"
        )

    def _queue(self, name: str) -> str:
        """The queue of that name, or the only one there is."""
        names = {load.name for load in overview.queue_loads([*overview.live_workers()])}
        if not name and len(names) == 1:
            return next(iter(names))
        if name not in names:
            known = ", ".join(sorted(names))
            raise CommandError(f"There is no queue {name!r}; there are: {known}." if name else f"Which of: {known}?")
        return name

    def _worker(self, name: str) -> Worker:
        live = overview.live_workers()
        return live.filter(hostname=name).first() or self._named(live, name, "live worker")

    def _named(self, rows: QuerySet[Row], name: str, what: str) -> Row:
        digits = name.replace("-", "").lower()
        if not digits or len(digits) > 32 or any(digit not in "0123456789abcdef" for digit in digits):
            raise CommandError(f"Name a {what} by its id or the beginning of it, not {name!r}.")
        found = [*rows.filter(pk__range=(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))))[:2]]
        if not found:
            raise CommandError(f"There is no {what} {name!r}.")
        if len(found) > 1:
            raise CommandError(f"Several {what}s begin with {name!r}.")
        return found[0]
