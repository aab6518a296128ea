"""The two sites that are attacked: one worker on SQLite, and two workers on PostgreSQL."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import postgresql
from tests.chaos.faults import Target
from tests.environment import ROOT
from tests.site import Site

CONCURRENCY = 3

Attacked = Callable[..., contextlib.AbstractContextManager[Target]]


def _site(folder: Path, lease_seconds: float, rate: int, concurrency: int, **environ: str) -> Site:
    return Site(
        folder,
        "--concurrency",
        str(concurrency),
        "--no-flower",
        GENERATION_MODELS=f"mock=mock:?rate={rate}",
        GENERATION_LEASE_SECONDS=str(lease_seconds),
        GENERATION_MESSAGES_PER_MINUTE="10000",
        **environ,
    )


@contextlib.contextmanager
def one_worker(folder: Path, *, lease_seconds: int, rate: int) -> Iterator[Target]:
    site = _site(folder, lease_seconds, rate, 2 * CONCURRENCY)
    try:
        yield Target(site.start(), lease_seconds)
    finally:
        site.stop()
        (folder / "site.log").write_text(site.lines.text)


@contextlib.contextmanager
def two_workers(folder: Path, *, lease_seconds: int, rate: int) -> Iterator[Target]:
    with postgresql.cluster("chaos", "chaos", "chaos") as cluster:
        url = f"postgres://chaos:chaos@127.0.0.1:{cluster.port}/chaos"
        site = _site(folder, lease_seconds, rate, CONCURRENCY, DATABASE_URL=url)
        second = None
        try:
            second = _SecondWorker(site.start(), folder)
            yield Target(site, lease_seconds, second.pids, cluster.restart)
        finally:
            if second is not None:
                second.stop()
            site.stop()
            (folder / "site.log").write_text(site.lines.text)


class _SecondWorker:
    """A worker of another machine, as it were: started again when it dies."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._log = folder / "second-worker.log"
        self._stopping = False
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def pids(self) -> list[int]:
        return [self._process.pid]

    def stop(self) -> None:
        self._stopping = True
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._thread.join()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = f"-m celery -A chatsite worker -Q gpu -P threads -c {CONCURRENCY} -n second@%h"
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *command.split(), "--without-mingle", "--without-gossip", "-E", "-l", "INFO"],
                cwd=ROOT,
                env=self._site.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _keep(self) -> None:
        while not self._stopping:
            self._process.wait()
            if not self._stopping:
                time.sleep(0.5)
                self._process = self._start()
