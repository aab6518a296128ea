"""Redis away in several ways, on a site that its own supervisor looks after."""

import os
import signal
import threading
from contextlib import AbstractContextManager

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


def cut_connections(site: Site) -> None:
    """Every client's at once: Redis itself lives on."""
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def num_connections(site: Site) -> int:
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        return len(client.client_list())
