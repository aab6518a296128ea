"""Redis away in several ways, on a site that its own supervisor looks after; and its database locked."""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import redis

from tests.site import Site, frozen


def restart_redis(site: Site) -> None:
    """Kill it and wait for the supervisor's next one."""
    before = site.lines.count
    os.kill(site.up["pids"]["redis"], signal.SIGKILL)
    site.lines.wait_for("started again: redis", after=before)


def keep_redis_down(site: Site, seconds: float) -> None:
    """Kill it and let the supervisor start the next one only so much later."""
    before = site.lines.count
    with site.unsupervised():
        os.kill(site.up["pids"]["redis"], signal.SIGKILL)
        threading.Event().wait(seconds)
    site.lines.wait_for("started again: redis", after=before)


def frozen_redis(site: Site) -> AbstractContextManager[None]:
    """It takes connections and answers nothing."""
    return frozen(site.up["pids"]["redis"])


@contextmanager
def full_redis(site: Site) -> Iterator[None]:
    """It refuses every write."""
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        client.config_set("maxmemory", "1")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")


@contextmanager
def locked_database(site: Site) -> Iterator[Callable[[], None]]:
    """Nobody else can write to SQLite's file until the end, or until a thread calls what is given."""
    connection = sqlite3.connect(site.var / "db.sqlite3", timeout=30, isolation_level=None, check_same_thread=False)
    with closing(connection):
        connection.execute("BEGIN IMMEDIATE")
        yield connection.rollback


def cut_connections(site: Site) -> None:
    """Every client's at once: Redis itself lives on."""
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def num_connections(site: Site) -> int:
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        return len(client.client_list())
