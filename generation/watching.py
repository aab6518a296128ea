"""Optionally cancels a reply that nobody has had open for a while (`GENERATION_CANCEL_ON_DISCONNECT_SECONDS`).

Every process that follows jobs notes them each tick, in one sorted set with Redis's own clock as the score. A job
that was never followed by anybody is nobody's to leave, and never in the set.
"""

import logging
from collections.abc import Collection
from uuid import UUID

import redis

from generation import conf, queue
from generation.delivery import stream
from generation.models import Job

logger = logging.getLogger(__name__)

WATCHED_KEY = "generation:watched"


async def note(job_ids: Collection[UUID]) -> None:
    """Somebody follows these jobs now."""
    grace = conf.cancel_on_disconnect_seconds()
    if grace is None or not job_ids:
        return
    client = stream.async_client()
    seconds, microseconds = await client.time()
    now = seconds + microseconds / 1e6
    await client.zadd(WATCHED_KEY, {str(job_id): now for job_id in job_ids})
    await client.expire(WATCHED_KEY, int(grace) + stream.RUNNING_TTL_SECONDS)


def cancel_abandoned() -> int:
    """Cancel every unfinished job whose last reader left longer ago than the grace time; how many."""
    grace = conf.cancel_on_disconnect_seconds()
    if grace is None:
        return 0
    client = stream.sync_client()
    try:
        seconds, microseconds = client.time()
        left = client.zrangebyscore(WATCHED_KEY, 0, seconds + microseconds / 1e6 - grace)
    except redis.RedisError:
        return 0
    unfinished = Job.objects.filter(state__in=[Job.State.QUEUED, Job.State.RUNNING])
    abandoned = list(unfinished.filter(pk__in=[UUID(job_id.decode()) for job_id in left]))
    for job in abandoned:
        logger.info("job %s is cancelled: nobody has had it open for %g s", job.pk, grace)
        queue.cancel(job)
    if left:
        client.zrem(WATCHED_KEY, *left)
    return len(abandoned)
