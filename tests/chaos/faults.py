"""What is done to the site while people talk, each thing with its name."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import redis

from tests.site import Site

Fault = Callable[["Target"], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Target:
    """The site under attack. `extra_workers` are further workers' pids, as they are now."""

    site: Site
    lease_seconds: float
    extra_workers: Callable[[], list[int]] = list
    restart_database: Callable[[], None] | None = None

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
    "database restarted": restart_database,
}
