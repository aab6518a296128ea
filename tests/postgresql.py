"""A fresh PostgreSQL cluster on a free port, for tests."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chatsite.local import ports


def _program(name: str) -> str:
    """Its path. Where PostgreSQL is missing the test is skipped, and fails under CI=true."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = shutil.which(name) or next((str(path) for path in newest_first), None)
    if found is None:
        reason = f"PostgreSQL's {name} isn't installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@dataclass(frozen=True, slots=True)
class Cluster:
    """`stop` is a crash, every connection is cut; `start` a recovery; `restart` is both."""

    url: str
    port: int
    stop: Callable[[], None]
    start: Callable[[], None]

    def restart(self) -> None:
        self.stop()
        self.start()


@contextlib.contextmanager
def cluster(
    user: str = "tokenline",
    password: str = "for-this-test-only",
    database: str = "tokenline",
    *,
    address: str = ports.LOOPBACK,
    inside: Sequence[str] = (),
) -> Iterator["Cluster"]:
    """Start one and make the database. It never runs as root, which PostgreSQL refuses.

    `inside` stands before each command of the server, to run it in another network; `address` is its own there.
    """
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    if inside:
        # Entering another network takes the rights that the server must not have.
        inside = [*inside, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    folder = Path(tempfile.mkdtemp(prefix="tokenline-postgresql-"))
    try:
        (folder / "password").write_text(password)
        if owner:
            shutil.chown(folder, "postgres", "postgres")
            shutil.chown(folder / "password", "postgres", "postgres")

        def run(*command: str) -> None:
            with (folder.parent / f"{folder.name}.log").open("ab") as log:
                as_owner: dict[str, Any] = {} if inside else owner
                subprocess.run([*inside, *command], check=True, cwd="/", stdout=log, stderr=log, **as_owner)

        port, place = ports.any_free(), str(folder / "cluster")
        run(initdb, "-D", place, "-U", user, f"--pwfile={folder / 'password'}", "-A", "scram-sha-256", "--no-sync")
        if address != ports.LOOPBACK:
            with Path(place, "pg_hba.conf").open("a") as access:
                access.write("host all all samenet scram-sha-256\n")
        options = f"-p {port} -c listen_addresses={address} -k {folder} -c fsync=off"

        def start() -> None:
            run(pg_ctl, "-D", place, "-o", options, "-w", "start")

        def stop() -> None:
            run(pg_ctl, "-D", place, "-m", "immediate", "-w", "stop")

        start()
        try:
            _make_database(address, port, user, password, database)
            yield Cluster(f"postgresql://{user}:{password}@{address}:{port}/{database}", port, stop, start)
        finally:
            if Path(place, "postmaster.pid").exists():
                stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


def _make_database(address: str, port: int, user: str, password: str, database: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(
        host=address, port=port, user=user, password=password, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
