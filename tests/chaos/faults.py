"""What is done to the site while people talk, each thing with its name."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from tests.chaos import scripts
from tests.chaos.scripts import Ask
from tests.faults.outages import locked_database
from tests.mock_words import repeated
from tests.site import Site

Fault = Callable[["Target"], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Target:
    """The site under attack. `extra_workers` are further workers' pids, as they are now.

    `obeys` says whether its model misbehaves when a prompt asks for it. Somebody will ask what is in `requests`.
    `away_seconds`: how long a part that is away stays away.
    """

    site: Site
    lease_seconds: float
    away_seconds: float
    model: scripts.Scripts = scripts.words
    obeys: bool = True
    extra_workers: Callable[[], list[int]] = list
    restart_database: Callable[[], None] | None = None
    num_database_connections: Callable[[], int] | None = None
    requests: deque[Ask] = field(default_factory=deque)

    def pid(self, name: str) -> int | None:
        """None while it is dead already."""
        found: int | None = self.site.up["pids"][name]
        return found


def _signal(pid: int | None, number: int) -> None:
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def killing(name: str, number: int = signal.SIGKILL) -> Fault:
    async def fault(target: Target) -> None:
        _signal(target.pid(name), number)

    return fault


def freezing(name: str, leases: float) -> Fault:
    """SIGSTOP for so many lease times, then SIGCONT."""

    async def fault(target: Target) -> None:
        pid = target.pid(name)
        _signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(leases * target.lease_seconds)
        finally:
            _signal(pid, signal.SIGCONT)

    return fault


def away(name: str) -> Fault:
    """Killed, and started again only after a while."""

    async def fault(target: Target) -> None:
        with target.site.unsupervised():
            _signal(target.pid(name), signal.SIGKILL)
            await asyncio.sleep(target.away_seconds)

    return fault


async def lose_redis_file(target: Target) -> None:
    """Killed, and its append-only file is gone: it begins with nothing."""
    with target.site.unsupervised():
        _signal(target.pid("redis"), signal.SIGKILL)
        await asyncio.sleep(0.5)
        for kept in (target.site.var / "redis").glob("appendonly*"):  # a file, a folder since Redis 7
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()


async def kill_redis_twice(target: Target) -> None:
    _signal(target.pid("redis"), signal.SIGKILL)
    await asyncio.sleep(2)
    _signal(target.pid("redis"), signal.SIGKILL)


async def empty_redis(target: Target) -> None:
    """As after a restart without an append-only file."""
    await asyncio.to_thread(_ask_redis, target, "FLUSHALL")


async def fill_redis(target: Target) -> None:
    """Redis refuses every write for some seconds."""
    await asyncio.to_thread(_ask_redis, target, "CONFIG", "SET", "maxmemory", "1")
    try:
        await asyncio.sleep(4)
    finally:
        await asyncio.to_thread(_ask_redis, target, "CONFIG", "SET", "maxmemory", "0")


def _ask_redis(target: Target, *command: Any) -> None:
    with contextlib.suppress(redis.RedisError), redis.Redis.from_url(target.site.up["redis_url"]) as client:
        client.execute_command(*command)


async def kill_worker_and_web(target: Target) -> None:
    _signal(target.pid("worker"), signal.SIGKILL)
    _signal(target.pid("web"), signal.SIGKILL)


async def kill_all_workers(target: Target) -> None:
    for pid in [target.pid("worker"), *target.extra_workers()]:
        _signal(pid, signal.SIGKILL)


async def restart_database(target: Target) -> None:
    if target.restart_database is not None:
        await asyncio.to_thread(target.restart_database)


async def lock_database(target: Target) -> None:
    """Somebody else writes to SQLite's file for longer than any statement waits."""
    with contextlib.ExitStack() as lock:
        await asyncio.to_thread(lock.enter_context, locked_database(target.site))
        await asyncio.sleep(target.away_seconds)


def asking(word: str, *, fails_with: str = "", num_words: int = 30, idle_seconds: float = 0) -> Fault:
    """Somebody sends a prompt with this word in it, which the model obeys."""

    async def fault(target: Target) -> None:
        text = scripts.nonced(12, also=word)
        expected = repeated(text, num_words)
        target.requests.append(Ask(text, expected, {"max_new_tokens": num_words}, fails_with, idle_seconds))

    return fault


FAULTS: dict[str, Fault] = {
    "worker killed": killing("worker"),
    "worker told to stop": killing("worker", signal.SIGTERM),
    "worker frozen for longer than its lease": freezing("worker", 1.5),
    "all workers killed": kill_all_workers,
    "web killed": killing("web"),
    "web told to stop": killing("web", signal.SIGTERM),
    "Redis killed": killing("redis"),
    "Redis killed twice in a row": kill_redis_twice,
    "Redis frozen": freezing("redis", 1.0),
    "Redis emptied": empty_redis,
    "Redis full": fill_redis,
    "worker and web killed": kill_worker_and_web,
    "Redis killed, its file lost": lose_redis_file,
    "Redis away": away("redis"),
    "worker away": away("worker"),
    "web away": away("web"),
    "web frozen": freezing("web", 1.5),
}
"""For every target."""

ON_POSTGRESQL: dict[str, Fault] = {"database restarted": restart_database}
ON_SQLITE: dict[str, Fault] = {"database locked by another": lock_database}

ON_REQUEST: dict[str, Fault] = {
    "a step fails": asking("raise-in-step@5", fails_with="engine_error"),
    "a step is out of memory": asking("out-of-memory@3", fails_with="engine_error"),
    "sampling fails": asking("raise-in-sampling@4", fails_with="engine_error"),
    "detokenising fails": asking("raise-in-detokenising@6", fails_with="engine_error"),
    "a prompt kills its worker each time": asking("die@2", fails_with="worker_lost"),
    "a device is lost": asking("lose-device@4#1"),
    "a step never returns": asking("hang@3#1"),
    "a reader reads nothing for a while": asking("", num_words=900, idle_seconds=10),
}
"""For a model that obeys."""


def against(target: Target) -> dict[str, Fault]:
    found = FAULTS | (ON_SQLITE if target.restart_database is None else ON_POSTGRESQL)
    return found | ON_REQUEST if target.obeys else found
