"""Brings back the jobs of workers that died, and ends what waited too long. Workers and web processes both run it."""

import logging
from datetime import timedelta

import redis
from django.db.models import Q

from generation import conf, instants, process_identity, queue, signals, watching
from generation.delivery import stream
from generation.models import Job, Queue, Worker

logger = logging.getLogger(__name__)


def reap() -> int:
    """Put every running job of a silent or dead worker back in line; how many."""
    now = instants.now()
    for worker in Worker.objects.filter(stopped_at=None):
        dead = process_identity.is_dead(worker.boot_id, worker.pid_namespace, worker.pid, worker.pid_started)
        if dead and Worker.objects.filter(pk=worker.pk, stopped_at=None).update(stopped_at=now):
            logger.warning("worker %s (pid %d) is dead", worker, worker.pid)
    silent_since = now - timedelta(seconds=conf.lease_seconds())
    orphans = Job.objects.filter(state=Job.State.RUNNING).filter(
        Q(worker=None) | Q(worker__stopped_at__isnull=False) | Q(worker__last_seen_at__lt=silent_since)
    )
    return sum(bring_back(job) for job in orphans.only("id", "epoch"))


def bring_back(job: Job) -> bool:
    """Put a running job that nobody runs back in line.

    The text so far goes into the row: if nobody can go on with the job, it is still there.
    """
    try:
        entries = stream.read_entries(stream.sync_client(), job.pk)
    except redis.RedisError:
        entries = []
    text = "".join(entry.text for entry in entries)
    fields = {"text": text, "last_seq": len(entries) + (not entries[-1].end)} if entries else {}
    done = queue.put_back(job.pk, job.epoch, drained=False, **fields)
    if done:
        logger.warning("job %s goes back to the line: no worker runs it any more", job.pk)
    return done


def sweep() -> None:
    """One round of both, for every queue, and of what the site adds; called each tick."""
    reap()
    watching.cancel_abandoned()
    for name in Queue.objects.values_list("name", flat=True):
        queue.expire(name)
    signals.tick.send_robust(sender=None)
