"""What is down, in words for people: looked at once a second by every process that has sockets.

It judges by trying, with clients and a thread of its own, so that nobody's waiting call keeps it from answering.
Each answer is there within `PATIENCE_SECONDS`; what takes longer counts as down until it comes.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import redis
import redis.asyncio
from channels.db import DatabaseSyncToAsync
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.utils.translation import override
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError
from redis.retry import Retry

from generation import conf, keepalive, overview
from generation.frames import Frame

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
LOCK_SECONDS = 1.5
PROBE_KEY = "generation:probe"


@dataclass(frozen=True, slots=True)
class Problem:
    """`message` is in the language of whoever it is told."""

    code: str
    message: Promise


REDIS = Problem("redis", _("The message service can't be reached. Replies go on by themselves when it is back."))
REDIS_FULL = Problem("redis_full", _("The message service is full. Replies go on by themselves when it has room."))
DATABASE = Problem("database", _("The database can't be reached. New messages are taken again when it is back."))
NO_WORKER = Problem("no_worker", _("No worker is running. Messages wait in line until one is."))


def status_frame(problems: tuple[Problem, ...], language: str) -> Frame:
    with override(language):
        told = [{"code": problem.code, "message": str(problem.message)} for problem in problems]
    return {"type": "status", "problems": told}


_thread = ThreadPoolExecutor(1, thread_name_prefix="outages-database")


class Outages:
    """Belongs to one event loop. `problems` is what the last look found."""

    def __init__(self) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._database_away_at = float("-inf")
        self._database: asyncio.Future[tuple[Problem, ...]] | None = None
        url = conf.redis_url()
        self._redis = redis.asyncio.Redis.from_url(
            url,
            socket_timeout=PATIENCE_SECONDS,
            socket_connect_timeout=PATIENCE_SECONDS,
            retry=Retry(NoBackoff(), 0),
            **keepalive.options(url),
        )

    async def look(self) -> bool:
        """Try everything once; whether anything changed."""
        found = await asyncio.gather(self._look_at_redis(), self._look_at_database())
        problems = tuple(problem for each in found for problem in each)
        changed, self.problems = problems != self.problems, problems
        if changed:
            logger.warning("down now: %s", ", ".join(problem.code for problem in problems) or "nothing any more")
        return changed

    async def close(self) -> None:
        await self._redis.aclose()

    async def _look_at_redis(self) -> tuple[Problem, ...]:
        try:
            # A write: a full Redis still answers everything else.
            await self._redis.set(PROBE_KEY, "", ex=60)
        except OutOfMemoryError:
            return (REDIS_FULL,)
        except (redis.RedisError, OSError):
            return (REDIS,)
        return ()

    async def _look_at_database(self) -> tuple[Problem, ...]:
        if self._database is None:
            look = DatabaseSyncToAsync(_database_problems, thread_sensitive=False, executor=_thread)
            self._database = asyncio.ensure_future(look())
        done, _ = await asyncio.wait({self._database}, timeout=PATIENCE_SECONDS)
        problems: tuple[Problem, ...] = (DATABASE,)
        if done:
            answered, self._database = self._database, None
            problems = answered.result()
        now = time.monotonic()
        if DATABASE in problems:
            self._database_away_at = now
        elif now - self._database_away_at < conf.lease_seconds():
            return ()  # workers couldn't write that they are there
        return problems


def _database_problems() -> tuple[Problem, ...]:
    try:
        if connection.vendor == "sqlite":
            # Readers are served while another process holds the lock that a prompt needs.
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000:.0f}")
            with transaction.atomic():
                pass
        served = {worker.queue for worker in overview.live_workers() if not worker.draining}
    except (DatabaseError, InterfaceError):
        return (DATABASE,)
    return _workers_missing(served)


def _workers_missing(served: set[str]) -> tuple[Problem, ...]:
    models = conf.models().values()
    alone = [spec.name for spec in models if spec.queue not in served]
    if not alone:
        return ()
    if len(alone) == len(models):
        return (NO_WORKER,)
    message = _("No worker is running for {models}. Messages wait in line until one is.")
    return (Problem("model_without_worker", format_lazy(message, models=", ".join(alone))),)
