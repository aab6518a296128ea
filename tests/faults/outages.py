"""Redis away in several ways, on a site that its own supervisor looks after."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.site import Site


def restart_redis(site: Site) -> None:
    """Kill it and wait for the supervisor's next one."""
    before = site.lines.count
    os.kill(site.up["pids"]["redis"], signal.SIGKILL)
    site.lines.wait_for("started again: redis", after=before)


def keep_redis_down(site: Site, seconds: float) -> None:
    """Kill it and let the supervisor start the next one only so much later."""
    assert site.process is not None
    before = site.lines.count
    os.kill(site.process.pid, signal.SIGSTOP)
    try:
        os.kill(site.up["pids"]["redis"], signal.SIGKILL)
        threading.Event().wait(seconds)
    finally:
        os.kill(site.process.pid, signal.SIGCONT)
    site.lines.wait_for("started again: redis", after=before)


@contextmanager
def frozen_redis(site: Site) -> Iterator[None]:
    """It takes connections and answers nothing."""
    pid = site.up["pids"]["redis"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def cut_connections(site: Site) -> None:
    """Every client's at once: Redis itself lives on."""
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def num_connections(site: Site) -> int:
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        return len(client.client_list())
