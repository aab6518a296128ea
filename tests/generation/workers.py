"""Real `celery worker` processes on this test's own database and Redis, and what they did, read from its rows."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from generation.delivery import stream
from generation.models import Job
from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Lines, clean_environment

POLL_SECONDS = 0.02


def database_url() -> str:
    """The address of the test's database for another process."""
    known: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{known['NAME']}"
    return f"postgresql://{known['USER']}:{known['PASSWORD']}@{known['HOST']}:{known['PORT']}/{known['NAME']}"


class CeleryWorker:
    """One worker process; `name` is its node's name."""

    def __init__(self, name: str, *options: str, **environ: str) -> None:
        known = {
            "DJANGO_SETTINGS_MODULE": "chatsite.settings",
            "CHATSITE_VAR": str(settings.VAR),
            "SECRET_KEY": settings.SECRET_KEY,
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "GENERATION_MODELS": "mock=mock:?rate=20",
            "GENERATION_LEASE_SECONDS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "chatsite", "worker", "-Q", "gpu", "-n", name]
            + ["--without-mingle", "--without-gossip", "-E", "-l", "INFO", *options],
            cwd=ROOT,
            env=clean_environment(**known) | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.log = Lines(self.process)

    def wait_until_ready(self) -> "CeleryWorker":
        self.log.wait_for(" ready.")
        return self

    def end(self, signal_number: int) -> int:
        """Send it a signal; its exit status."""
        self.process.send_signal(signal_number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_SECONDS)
        self.log.wait_for_end()
        return status


@contextmanager
def celery_workers() -> Iterator[Callable[..., CeleryWorker]]:
    """`start(name, *options, **environ)` starts one with threads and returns when it is ready; all are killed after."""
    workers: list[CeleryWorker] = []

    def start(name: str, *options: str, **environ: str) -> CeleryWorker:
        worker = CeleryWorker(f"{name}@test", "-P", "threads", *options, **environ)
        workers.append(worker)
        return worker.wait_until_ready()

    try:
        yield start
    finally:
        for worker in workers:
            worker.process.kill()
            worker.wait()
            print(worker.log.text)


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Poll until the condition is met; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not met after {seconds:g} s"
        time.sleep(POLL_SECONDS)
    return value


def has_ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.is_final


def num_written(job: Job) -> int:
    """How many entries the job's stream holds."""
    return int(stream.sync_client().xlen(stream.tokens_key(job.pk)))
