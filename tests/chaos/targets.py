"""The sites that are attacked: one worker on SQLite with `mock` or the built-in model, two workers on PostgreSQL."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from tests import postgresql
from tests.chaos import checks, scripts
from tests.chaos.faults import Target
from tests.environment import ROOT
from tests.site import Site

CONCURRENCY = 3

Attacked = Callable[..., contextlib.AbstractContextManager[Target]]


def _site(folder: Path, lease_seconds: float, concurrency: int, **environ: str) -> Site:
    return Site(
        folder,
        "--concurrency",
        str(concurrency),
        "--no-flower",
        GENERATION_LEASE_SECONDS=str(lease_seconds),
        GENERATION_MESSAGES_PER_MINUTE="10000",
        **environ,
    )


def _obedient(rate: int) -> dict[str, str]:
    """The environment for the model `mock` that misbehaves when a prompt asks for it."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "GENERATION_MODELS": f"mock=mock:?rate={rate}",
        "GENERATION_MAX_NEW_TOKENS": "1000",
    }


@contextlib.contextmanager
def one_worker(folder: Path, *, seed: int, lease_seconds: int, rate: int, away_seconds: float) -> Iterator[Target]:
    site = _site(folder, lease_seconds, 2 * CONCURRENCY, **_obedient(rate))
    with _running(site, folder):
        yield Target(site, lease_seconds, away_seconds)


@contextlib.contextmanager
def built_in_model(folder: Path, *, seed: int, lease_seconds: int, rate: int, away_seconds: float) -> Iterator[Target]:
    """A real model in fp32: its replies are computed first, by another process."""
    replies = scripts.model(seed)
    site = _site(folder, lease_seconds, CONCURRENCY, GENERATION_MODELS="smollm2=builtin:smollm2-135m?dtype=float32")
    with _running(site, folder):
        yield Target(site, lease_seconds, away_seconds, model=replies, obeys=False)


@contextlib.contextmanager
def two_workers(folder: Path, *, seed: int, lease_seconds: int, rate: int, away_seconds: float) -> Iterator[Target]:
    with postgresql.cluster() as cluster:
        site = _site(folder, lease_seconds, CONCURRENCY, DATABASE_URL=cluster.url, **_obedient(rate))
        with _running(site, folder):
            second = _SecondWorker(site, folder)
            try:
                yield Target(
                    site,
                    lease_seconds,
                    away_seconds,
                    extra_workers=second.pids,
                    restart_database=cluster.restart,
                    num_database_connections=lambda: _num_connections(cluster.url),
                )
            finally:
                second.stop()


@contextlib.contextmanager
def _running(site: Site, folder: Path) -> Iterator[None]:
    """From its start to its end, which must leave no process behind."""
    try:
        site.start()
        yield
    finally:
        site.stop()
        (folder / "site.log").write_text(site.lines.text)
    left = checks.processes(site)
    assert not left, f"processes {left} outlived the site"


def _num_connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
        assert row is not None
        return int(row[0])


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
                env=self._site.env | {"DJANGO_SETTINGS_MODULE": "tests.faults.settings"},
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
