"""The site spread over hosts: web, Redis and PostgreSQL on `hub`, a worker on each other one."""

import contextlib
import http.cookiejar
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from chatsite.local import redis_server
from tests import postgresql
from tests.across_hosts.hosts import Host
from tests.site import Lines, clean_environment

LEASE_SECONDS = 5
RATE = 20
MAX_WAIT_SECONDS = 120
"""Shorter than the clocks are apart: a host that asked its own would let waiting jobs expire."""

_LINKS = """
from chatsite.local import first_start, links
for number in range({count}):
    print(links.sign_in_link(first_start.person(f"person-{{number}}"), links.site_origin()))
"""
_ROWS_REMEMBER = """
CREATE TABLE changes (id serial PRIMARY KEY, job uuid, state text, epoch integer, hostname text);
CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO changes (job, state, epoch, hostname) VALUES
    (NEW.id, NEW.state, NEW.epoch, (SELECT hostname FROM generation_worker WHERE id = NEW.worker_id));
  RETURN NEW;
END $$;
CREATE TRIGGER remember AFTER UPDATE OF state ON generation_job FOR EACH ROW
  WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION remember();
"""


class SpreadSite:
    """`url` and `up` are those of a `tests.site.Site`.

    `clocks` tells how far each worker's clock is ahead of ours, by what it logs.
    """

    def __init__(self, hosts: dict[str, Host], folder: Path, database_url: str) -> None:
        self.hosts = hosts
        self._hub = hosts["hub"]
        address = self._hub.address
        self.url = f"http://{address}:8000"
        self.up = {"redis_url": f"redis://:secret@{address}:6379/0"}
        self.database_url = database_url
        self.logs: dict[str, Lines] = {}
        self.clocks: dict[str, float] = {}
        self.environment = clean_environment(
            CHATSITE_VAR=str(folder / "var"),
            SECRET_KEY="k" * 50,
            ALLOWED_HOSTS=address,
            CSRF_TRUSTED_ORIGINS=self.url,
            DATABASE_URL=self.database_url,
            REDIS_URL=self.up["redis_url"],
            GENERATION_MODELS=f"mock=mock:?rate={RATE}",
            GENERATION_LEASE_SECONDS=str(LEASE_SECONDS),
            GENERATION_MAX_WAIT_SECONDS=str(MAX_WAIT_SECONDS),
            PYTHONUNBUFFERED="1",
        )

    def start(self) -> None:
        """Everything on the hub."""
        place = f"--port 6379 --bind {self._hub.address} --requirepass secret --save".split()
        redis = self._hub.lines([redis_server.find_program(), *place, ""], self.environment)
        redis.wait_for("Ready to accept connections")
        self.manage("migrate", "--noinput", "-v", "0")
        self.manage("collectstatic", "--noinput", "-v", "0")
        with self.database() as database:
            database.execute(_ROWS_REMEMBER)
        web = ["-m", "daphne", "-b", self._hub.address, "-p", "8000", "--websocket_timeout", "-1"]
        self.logs["hub"] = self._hub.lines([sys.executable, *web, "chatsite.asgi:application"], self.environment)
        self.logs["hub"].wait_for("Listening on TCP")

    def start_worker(self, name: str, concurrency: int) -> None:
        options = f"-Q gpu -P threads -c {concurrency} -n gpu@{name} --without-mingle --without-gossip -E -l INFO"
        command = [sys.executable, "-m", "celery", "-A", "chatsite", "worker", *options.split()]
        self.logs[name] = self.hosts[name].lines(command, self.environment)
        written = self.logs[name].wait_for("ready.").split(",")[0]
        seen = datetime.fromisoformat(written).replace(tzinfo=UTC)
        self.clocks[name] = (seen - datetime.now(UTC)).total_seconds()

    def manage(self, *arguments: str) -> str:
        return self._hub.run([sys.executable, "manage.py", *arguments], self.environment)

    def database(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(self.database_url, autocommit=True)

    def changes(self) -> list[tuple[str, str, int, str | None]]:
        """(job, new state, epoch, worker's node name), in the order in which the rows changed."""
        with self.database() as database:
            query = "SELECT job::text, state, epoch, hostname FROM changes ORDER BY id"
            return database.execute(query).fetchall()

    def rows(self) -> dict[str, dict[str, Any]]:
        """Every job's row, by its id."""
        with self.database() as database:
            query = "SELECT id::text, row_to_json(generation_job) FROM generation_job"
            return dict(database.execute(query).fetchall())

    @contextlib.contextmanager
    def draining(self, name: str) -> Iterator[None]:
        """Meanwhile that worker claims nothing."""
        change = "UPDATE generation_worker SET draining = %s WHERE hostname = %s"
        with self.database() as database:
            database.execute(change, (True, f"gpu@{name}"))
            try:
                yield
            finally:
                database.execute(change, (False, f"gpu@{name}"))

    def cookies(self, count: int) -> list[str]:
        """A session cookie for each of so many people."""
        found = []
        for link in self.manage("shell", "--no-imports", "-c", _LINKS.format(count=count)).split():
            jar = http.cookiejar.CookieJar()
            handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
            urllib.request.build_opener(*handlers).open(link).close()
            found.append("; ".join(f"{cookie.name}={cookie.value}" for cookie in jar))
        return found


@contextlib.contextmanager
def spread_site(hosts: dict[str, Host], folder: Path) -> Iterator[SpreadSite]:
    hub = hosts["hub"]
    with (
        postgresql.cluster(address=hub.address, inside=hub.inside) as cluster,
        contextlib.ExitStack() as removal,
    ):
        site = SpreadSite(hosts, folder, cluster.url)
        for host in hosts.values():
            removal.callback(host.stop)
        for worker in (host for host in hosts.values() if host is not hub):
            removal.callback(worker.ask_to_stop)
        site.start()
        yield site
