"""Hints sent after a commit: a wake for a worker, a word to whoever watches a job, Django's signals.

All of them may be lost: the row is the truth, and a tick finds what a lost hint would have said. So nothing here
raises when Redis is away, and nothing here waits long for it.
"""

import logging
import uuid
from typing import Any
from uuid import UUID

import redis
from kombu.exceptions import OperationalError

from generation import signals
from generation.delivery import stream
from generation.models import Job

logger = logging.getLogger(__name__)

CONTROL = "generation:control:{}"

PASSED = "generation_passed"
"""A wake's header: how many workers had no use for it. No argument, for an older worker would refuse that."""


def wake(queue_name: str, sent_for: str = "", task_id: str = "", *, num_passed: int = 0) -> None:
    """One Celery message that makes a worker of this queue claim whatever is first in line."""
    from generation.tasks import generate  # the task imports the queue

    try:
        with generate.app.producer_or_acquire() as producer:
            # Without this Kombu tries to connect for six seconds, whatever `retry` says, while somebody waits.
            producer.connection.ensure_connection(max_retries=1, interval_start=0.1)
            generate.apply_async(
                kwargs={"sent_for": sent_for},
                queue=queue_name,
                task_id=task_id or str(uuid.uuid4()),
                producer=producer,
                retry=False,
                ignore_result=True,
                headers={PASSED: num_passed} if num_passed else None,
            )
    except (OperationalError, redis.RedisError, OSError) as error:
        logger.warning("no wake was sent for queue %s: %s; a worker's next tick finds the job", queue_name, error)


def changed(job: Job, signal: str = "") -> None:
    """Tell whoever watches the job to read its row, and Django's receivers what happened."""
    _publish(stream.group_channel(job.pk), stream.wire({"type": "job.changed", "job": str(job.pk)}))
    if signal:
        for receiver, result in getattr(signals, signal).send_robust(sender=Job, job=job):
            if isinstance(result, Exception):
                logger.error("receiver %r of %s failed", receiver, signal, exc_info=result)


def changed_id(job_id: UUID, signal: str = "") -> None:
    job = Job.objects.filter(pk=job_id).first()
    if job is not None:
        changed(job, signal)


def tell(group: str, message: dict[str, Any]) -> None:
    """A message to every socket in a channel group, from a thread."""
    _publish(stream.channel_of(group), stream.wire(message))


def control(worker_id: UUID, job_id: UUID) -> None:
    """Tell a worker at once that a cancellation was asked for."""
    _publish(CONTROL.format(worker_id), str(job_id).encode())


def shorten_stream(job_id: UUID) -> None:
    """Let the stream of a job that ended without a marker live no longer than one that has it."""
    try:
        for key in (stream.tokens_key(job_id), stream.owner_key(job_id)):
            stream.sync_client().expire(key, stream.ENDED_TTL_SECONDS)
    except redis.RedisError as error:
        logger.warning("the stream of job %s lives for a day: %s", job_id, error)


def forget_stream(job_id: UUID) -> None:
    try:
        stream.sync_client().delete(stream.tokens_key(job_id))
    except redis.RedisError as error:
        logger.warning("the old stream of job %s stays until it expires: %s", job_id, error)


def _publish(channel: str, payload: Any) -> None:
    try:
        stream.sync_client().publish(channel, payload)
    except redis.RedisError as error:
        logger.warning("a hint was not published: %s", error)
