"""A worker's two watching threads: the lease that keeps its row alive, and the control channel."""

import logging
import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import redis
from django.db import close_old_connections

from generation import conf, instants, keepalive, notices, reaper, retention
from generation.delivery import stream
from generation.models import Job, Worker
from generation.running import StopCause

if TYPE_CHECKING:
    from generation.worker import WorkerProcess

logger = logging.getLogger(__name__)

CLEAR_EVERY_SECONDS = 3600.0
WEDGED_STATUS = 70


class LeaseThread:
    """Each tick: refresh the row, look at the rows of what runs here, bring back the jobs of dead workers.

    The row is refreshed only while every engine steps or is idle, so a wedged engine loses its lease, and its jobs
    go on elsewhere; some time later the process ends itself.
    """

    def __init__(self, process: "WorkerProcess") -> None:
        self._process = process
        self._stopping = threading.Event()
        self._clear_at = 0.0
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for part in (
                self._refresh,
                self._look_at_claims,
                self._bring_back_forgotten,
                reaper.sweep,
                self._process.wake_others,
                self._clear_old,
            ):
                try:
                    part()
                except Exception as error:
                    logger.warning("the lease's tick could not %s: %s", part.__name__.strip("_"), error)
                    close_old_connections()
            close_old_connections()
            self._stopping.wait(conf.lease_refresh_seconds())

    def _refresh(self) -> None:
        process = self._process
        wedged = self._wedged_seconds()
        if wedged > 2 * conf.lease_seconds():
            # Nothing in this process can end a step that never returns; its supervisor can start a new process.
            logger.critical("an engine has not finished a step for %.0f s; this worker ends itself", wedged)
            logging.shutdown()
            os._exit(WEDGED_STATUS)
        if wedged > conf.lease_seconds():
            logger.error("an engine has not finished a step for %.0f s; the lease is not refreshed", wedged)
            return
        row = Worker.objects.filter(pk=process.row.pk)
        # Before Redis is asked: one that hangs must not cost the lease.
        row.update(last_seen_at=instants.now(), busy=len(process.claims))
        process.row.draining = bool(row.values_list("draining", flat=True).first())
        try:
            redis_id = stream.redis_id(stream.sync_client())
            if redis_id != process.row.redis_id:
                row.update(redis_id=redis_id)
                process.row.redis_id = redis_id
        except redis.RedisError as error:
            logger.warning("Redis doesn't answer: %s", error)

    def _clear_old(self) -> None:
        if time.monotonic() >= self._clear_at:
            self._clear_at = time.monotonic() + CLEAR_EVERY_SECONDS
            retention.clear_old_messages()

    def _wedged_seconds(self) -> float:
        """How long the slowest engine has been at one step; 0 where all are idle."""
        busy = [stats for engine in list(self._process.engines.values()) if not (stats := engine.stats()).idle]
        return max((time.monotonic() - stats.last_step_at for stats in busy), default=0.0)

    def _look_at_claims(self) -> None:
        """Stop what was cancelled, what another claim has taken over, and what took too long."""
        claims = self._process.running()
        if not claims:
            return
        rows = {
            row["pk"]: row
            for row in Job.objects.filter(pk__in=[claim.job.pk for claim in claims]).values(
                "pk", "state", "epoch", "cancel_requested_at"
            )
        }
        for claim in claims:
            row = rows.get(claim.job.pk)
            if row is None or row["epoch"] != claim.job.epoch:
                claim.stop(StopCause.LOST)
            elif row["cancel_requested_at"] is not None:
                claim.stop(StopCause.CANCEL)
            elif time.monotonic() - claim.started > conf.job_timeout_seconds():
                claim.stop(StopCause.DEADLINE)

    def _bring_back_forgotten(self) -> None:
        """Return what runs here by its row but not in truth: the database was lost between a claim's commit and its
        answer, or for so long that an end could not be written. No other worker would: this one is alive.
        """
        settled = instants.now() - timedelta(seconds=conf.lease_seconds())
        mine = Job.objects.filter(worker=self._process.row, state=Job.State.RUNNING, started_at__lt=settled)
        forgotten = list(mine.only("id", "epoch"))
        known = {(claim.job.pk, claim.job.epoch) for claim in self._process.running()}
        for job in forgotten:
            if (job.pk, job.epoch) not in known:
                reaper.bring_back(job)


class ControlThread:
    """Hears of cancellations at once; the lease's tick finds those whose message was lost."""

    def __init__(self, process: "WorkerProcess") -> None:
        self._process = process
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        channel = notices.CONTROL.format(self._process.row.pk)
        while not self._stopping.is_set():
            url = conf.redis_url()
            client = redis.Redis.from_url(url, socket_connect_timeout=2, **keepalive.options(url))
            try:
                with client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    pubsub.subscribe(channel)
                    while not self._stopping.is_set():
                        message = pubsub.get_message(timeout=1.0)
                        if message is not None:
                            self._take(message["data"])
            except (redis.RedisError, OSError) as error:
                logger.warning("the control channel is away: %s", error)
                self._stopping.wait(0.5)
            finally:
                client.close()

    def _take(self, message: bytes) -> None:
        """The id of a job that is to stop; what else a newer version may say is ignored."""
        try:
            job_id = UUID(message.decode())
        except ValueError:
            logger.warning("a control message was not understood: %.100r", message)
            return
        for claim in self._process.running():
            if claim.job.pk == job_id:
                claim.stop(StopCause.CANCEL)
