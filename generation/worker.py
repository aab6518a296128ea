"""The worker process: its row, its engines, its running claims. It knows nothing of Celery, which builds it.

Identity is the process incarnation, not the node's name, which a restart keeps.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import cast
from uuid import UUID

from django.db import close_old_connections

from generation import conf, instants, line, notices, overview, process_identity, queue, running
from generation.delivery import stream
from generation.delivery.writer import TokenWriter
from generation.engine import DeviceLost, Engine, Event, EventType, ModelSpec, load_engine
from generation.lease import ControlThread, LeaseThread
from generation.models import Job, Queue, Worker
from generation.running import Claim, StopCause

logger = logging.getLogger(__name__)

DEVICE_LOST_STATUS = 71


class NoModelLoaded(Exception):
    """A worker without a model can answer nothing; why was printed for each."""


class WorkerProcess:
    """Everything one GPU worker owns. Methods may be called from any thread."""

    def __init__(self, hostname: str, queue_name: str, concurrency: int) -> None:
        self.queue_name = queue_name
        self.concurrency = concurrency
        self.engines: dict[str, Engine] = {}
        self.claims: dict[tuple[UUID, int], Claim] = {}
        self.draining = False
        self._lock = threading.Lock()
        self._claiming = threading.Lock()
        self._num_unused_wakes = 0
        self.row = self._register(hostname)
        self.writer = TokenWriter(conf.redis_url(), current_epoch, self._lost)
        self.lease = LeaseThread(self)
        self.control = ControlThread(self)

    def _register(self, hostname: str) -> Worker:
        identity = process_identity.current()
        Queue.objects.get_or_create(name=self.queue_name)
        now = instants.now()
        return Worker.objects.create(
            queue=self.queue_name,
            hostname=hostname,
            host=identity.host,
            boot_id=identity.boot_id,
            pid_namespace=identity.pid_namespace,
            pid=identity.pid,
            pid_started=identity.pid_started,
            slots=self.concurrency,
            started_at=now,
            last_seen_at=now,
        )

    def load(self, specs: Sequence[ModelSpec]) -> None:
        """Load every model of the queue, noting each one's state in the row. Raises NoModelLoaded."""
        known = self._failures_of_last_start()
        self.row.models = [{"name": spec.name, "state": "loading", "error": ""} for spec in specs]
        self.row.save(update_fields=["models"])
        self.writer.start()
        self.lease.start()
        errors: list[Exception] = []
        for spec, entry in zip(specs, self.row.models, strict=True):
            try:
                slots = self._slots(spec)
                self.engines[spec.name] = load_engine(
                    spec,
                    slots=slots,
                    on_events=self._take_events,
                    on_lost=_end_process,
                    log=lambda text: print(text, flush=True),
                )
                entry |= {"state": "ready", "context": self.engines[spec.name].context}
            except Exception as error:
                errors.append(error)
                entry["state"], entry["error"] = "failed", f"{type(error).__name__}: {error}"
                if entry not in known:
                    traceback.print_exc()
                print(
                    f"model {spec.name} ({spec.source}) could not be loaded: {error}",
                    file=sys.stderr,
                    flush=True,
                )
            Worker.objects.filter(pk=self.row.pk).update(models=self.row.models)
        if not self.engines and errors:
            raise NoModelLoaded("none of its models could be loaded")

    def _failures_of_last_start(self) -> list[dict[str, str]]:
        """What the log has said in full already: a supervisor starts a worker without a model again and again."""
        before = Worker.objects.filter(hostname=self.row.hostname, queue=self.queue_name).exclude(pk=self.row.pk)
        last = before.order_by("-started_at").first()
        return [entry for entry in last.models if entry["state"] == "failed"] if last else []

    def _slots(self, spec: ModelSpec) -> int:
        if spec.slots is not None and spec.slots < self.concurrency:
            raise ValueError(
                f"model {spec.name} has slots={spec.slots}, but the worker runs -c {self.concurrency} at once; "
                f"give it at least {self.concurrency}"
            )
        return spec.slots or self.concurrency

    def start(self) -> None:
        """Take part: engines step, cancellations arrive, waiting jobs are woken."""
        for engine in self.engines.values():
            engine.start()
        self.control.start()
        if policy := stream.evicting_policy(stream.sync_client()):
            logger.warning("Redis may throw replies away when it is full: its maxmemory-policy is %s", policy)
        self.wake_others()

    def claim(self, task_id: str) -> Job | None:
        """The next job for a free slot; whoever gets it must `run` it.

        A job that is on its last attempt may be what killed the workers before. It begins while nothing else does,
        lest others that have no token yet die with it once too often.
        """
        if self.draining or not self.engines:
            with self._lock:
                self._num_unused_wakes += 1
            return None
        with self._claiming:
            beginning = [claim for claim in self.running() if not claim.has_progress]
            if any(claim.job.attempt == queue.MAX_ATTEMPTS for claim in beginning):
                return None
            job = queue.claim(self.queue_name, list(self.engines), self.row, task_id, last_attempts=not beginning)
            if job is not None:
                with self._lock:
                    self.claims[job.pk, job.epoch] = Claim(job)
            return job

    def run(self, job: Job) -> None:
        """Run a claimed job to its next state, in the caller's thread."""
        key = (job.pk, job.epoch)
        claim = self.claims[key]
        try:
            if self.draining:
                claim.stop(StopCause.DRAIN)
            running.run(claim, self.engines[job.model], self.writer)
        finally:
            with self._lock:
                del self.claims[key]

    def running(self) -> list[Claim]:
        with self._lock:
            return list(self.claims.values())

    def wake_others(self) -> None:
        """Send a wake for each free slot that a waiting job could take, if the broker holds no message."""
        try:
            free = self.concurrency - len(self.claims)
            if free <= 0 or self.draining or self.row.draining or not self.engines:
                return
            if Queue.objects.filter(pk=self.queue_name, paused=True).exists():
                return
            models = list(self.engines)
            claimable = line.waiting(self.queue_name).filter(model__in=models).order_by()[:free].count()
            if claimable and not stream.sync_client().llen(self.queue_name):
                for _ in range(claimable):
                    notices.wake(self.queue_name)
        except Exception as error:
            logger.warning("no wake was sent: %s; the next tick tries again", error)

    def pass_on(self, num_passed: int) -> None:
        """Send on a wake that found nothing to claim here, if a waiting job is another worker's to claim.

        Redis hands a message to whoever has listened longest, so it comes to each worker in turn. It ends after two
        rounds: whoever could run the job is busy then, and wakes itself when a slot falls free.
        """
        workers = list(overview.live_workers().filter(queue=self.queue_name))
        if num_passed >= 2 * len(workers):
            return
        taking = [worker for worker in workers if not worker.draining]
        others = {model for worker in taking if worker.pk != self.row.pk for model in worker.ready_models}
        if any(worker.pk == self.row.pk for worker in taking):
            others -= set(self.engines)
        if not others or Queue.objects.filter(pk=self.queue_name, paused=True).exists():
            return
        if line.waiting(self.queue_name).filter(model__in=others).exists():
            notices.wake(self.queue_name, num_passed=num_passed + 1)

    def drain(self) -> None:
        """Claim no more and give every running job back to the line; their tasks then end."""
        self.draining = True
        for claim in self.running():
            claim.stop(StopCause.DRAIN)

    def close(self) -> None:
        """End the threads and the row. What is still unwritten gets a few seconds."""
        self.draining = True
        # While it drained this worker still took messages, the ones for its own jobs first of all.
        for _ in range(self._num_unused_wakes):
            notices.wake(self.queue_name)
        self.control.stop()
        for engine in self.engines.values():
            engine.close()
        self.writer.close()
        self.lease.stop()
        close_old_connections()  # this thread's may have been cut since the models were loaded
        Worker.objects.filter(pk=self.row.pk).update(stopped_at=instants.now(), busy=0)

    def _take_events(self, events: list[Event]) -> None:
        """One step's events of all sequences, on the engine's thread: append and wake, never wait."""
        for event in events:
            job_id, epoch = cast(tuple[UUID, int], event.identifier)
            if event.type is EventType.TOKEN:
                self.writer.put(job_id, epoch, event.ids, event.text)
            elif event.type is EventType.PREFILL:
                self.writer.hint(
                    job_id,
                    {
                        "type": "job.prefill",
                        "job": str(job_id),
                        "epoch": epoch,
                        "done": event.done,
                        "total": event.total,
                    },
                )
        self.writer.wake()

    def _lost(self, job_id: UUID, epoch: int) -> None:
        claim = self.claims.get((job_id, epoch))
        if claim is not None:
            claim.stop(StopCause.LOST)


def _end_process(error: DeviceLost) -> None:
    """Nothing here will ever answer again, and every job that it claims would fail: another process must go on."""
    logger.critical("%s; this worker ends itself", error)
    logging.shutdown()
    os._exit(DEVICE_LOST_STATUS)


def current_epoch(job_id: UUID) -> int | None:
    """The epoch in the job's row, for the writer's thread."""
    close_old_connections()
    try:
        return Job.objects.filter(pk=job_id).values_list("epoch", flat=True).first()
    finally:
        close_old_connections()
