"""Optionally cancels a reply that nobody has had open for a while (`GENERATION_CANCEL_ON_DISCONNECT_SECONDS`).

Every process that follows jobs notes them each tick, with Redis's own clock. How long ago somebody was there is
counted to the process's latest note, not to now: while Redis is away nobody can note anything, and nobody has left.
A job that was never followed by anybody is nobody's to leave.
"""

import logging
import uuid
from collections.abc import Collection
from uuid import UUID

import redis

from generation import conf, queue
from generation.delivery import stream
from generation.models import Job

logger = logging.getLogger(__name__)

# By job: the process that noted it last, and when; by process: its latest note.
WATCHED_KEY = "generation:watched-jobs"
WATCHERS_KEY = "generation:watchers"
SILENT_SECONDS = 30.0
"""A process that is so far behind the newest note of all is taken for dead."""

_process = str(uuid.uuid4())


async def note(job_ids: Collection[UUID], *, stays: bool = True) -> None:
    """Somebody followed these jobs here until now. A process that `stays` will note again within seconds."""
    grace = conf.cancel_on_disconnect_seconds()
    if grace is None:
        return
    client = stream.async_client()
    seconds, microseconds = await client.time()
    now = seconds + microseconds / 1e6
    async with client.pipeline(transaction=True) as pipe:
        if job_ids:
            pipe.hset(WATCHED_KEY, mapping={str(job_id): f"{_process} {now}" for job_id in job_ids})
        if stays:
            pipe.hset(WATCHERS_KEY, _process, now)
        else:
            pipe.hdel(WATCHERS_KEY, _process)
        for key in (WATCHED_KEY, WATCHERS_KEY):
            pipe.expire(key, int(grace) + stream.RUNNING_TTL_SECONDS)
        await pipe.execute()


def cancel_abandoned() -> int:
    """Cancel every unfinished job whose last reader left longer ago than the grace time; how many."""
    grace = conf.cancel_on_disconnect_seconds()
    if grace is None:
        return 0
    client = stream.sync_client()
    try:
        left = [job_id for job_id, seconds in _unwatched_seconds(client).items() if seconds > grace]
    except redis.RedisError:
        return 0
    unfinished = Job.objects.filter(state__in=[Job.State.QUEUED, Job.State.RUNNING])
    abandoned = list(unfinished.filter(pk__in=[UUID(job_id) for job_id in left]))
    for job in abandoned:
        logger.info("job %s is cancelled: nobody has had it open for %g s", job.pk, grace)
        queue.cancel(job)
    if left:
        client.hdel(WATCHED_KEY, *left)
    return len(abandoned)


def _unwatched_seconds(client: redis.Redis) -> dict[str, float]:
    """For how long nobody has been at each job that was ever followed."""
    seconds, microseconds = client.time()
    watchers = {name.decode(): float(at) for name, at in client.hgetall(WATCHERS_KEY).items()}
    newest = max(watchers.values(), default=seconds + microseconds / 1e6)
    live = {name: at for name, at in watchers.items() if newest - at < SILENT_SECONDS}
    if dead := watchers.keys() - live.keys():
        client.hdel(WATCHERS_KEY, *dead)  # one that was only slow notes itself again
    unwatched = {}
    for job_id, noted in client.hgetall(WATCHED_KEY).items():
        name, _, at = noted.decode().partition(" ")
        unwatched[job_id.decode()] = live.get(name, newest) - float(at)
    return unwatched
