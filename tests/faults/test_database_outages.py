"""PostgreSQL ends every connection, or restarts, while people talk."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest
import redis

from generation.delivery import stream
from tests import postgresql
from tests.chat.sockets import Socket, people
from tests.faults.conftest import ENVIRONMENT
from tests.faults.replies import end_of
from tests.generation.workers import wait_until
from tests.mock_words import repeated
from tests.site import Site

CONCURRENCY = 4
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Outside:
    """The site, and what may happen to its database."""

    site: Site
    cluster: postgresql.Cluster

    def ask(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.cluster.url, autocommit=True) as connection:
            answer = connection.execute(statement, values)  # type: ignore[call-overload]
            return answer.fetchall() if answer.description else []

    def check_whole(self, socket: Socket, job: str, text: str, words: int) -> None:
        assert end_of(socket, job)["type"] == "finished"
        assert socket.text(job) == repeated(text, words)
        stored = self.ask("SELECT state, text FROM generation_job WHERE id = %s", job)
        assert stored == [("finished", repeated(text, words))]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with postgresql.cluster() as cluster:
        folder = tmp_path_factory.mktemp("database")
        environ = ENVIRONMENT | {"DATABASE_URL": cluster.url}
        site = Site(folder, "--no-flower", "--concurrency", str(CONCURRENCY), **environ)
        try:
            yield Outside(site.start(), cluster)
        finally:
            site.stop()
            print(site.lines.text)


def test_prompts_run_after_every_connection_was_ended_and_no_connection_is_left_over(outside: Outside) -> None:
    """Connections piled up, or a dead one was used for ever after (django/channels#871, django/channels#1234,
    celery/celery#10554).
    """
    pids = outside.site.up["pids"]
    (person,) = people(outside.site)
    counts = []
    with person.socket() as socket:
        for number in range(3):
            text = f"round {number}"
            jobs = [socket.prompt(text, params={"max_new_tokens": 150})["job"] for _ in range(CONCURRENCY)]
            outside.ask(f"SELECT pg_terminate_backend(pid) {OTHERS}")
            for job in jobs:
                outside.check_whole(socket, job, text, 150)
            counts.append(outside.ask(f"SELECT count(*) {OTHERS}")[0][0])
    # The tasks' threads, the worker's lease and writer, and the web process's few threads.
    assert max(counts) <= CONCURRENCY + 2 + 8, counts
    assert outside.site.up["pids"] == pids


def test_a_reply_goes_on_and_a_prompt_is_taken_after_the_database_restarted(outside: Outside) -> None:
    (person,) = people(outside.site)
    with person.socket() as socket:
        job = socket.prompt("before the restart", params={"max_new_tokens": 400})["job"]
        socket.until("token", job=job)
        outside.cluster.restart()
        outside.check_whole(socket, job, "before the restart", 400)
        job = socket.prompt("after it", params={"max_new_tokens": 5})["job"]
        outside.check_whole(socket, job, "after it", 5)


def test_a_socket_signed_out_while_the_database_restarts_is_closed(outside: Outside) -> None:
    """An old socket worked on after its sign-in was over (django/channels#718, django/channels#1324)."""
    (person,) = people(outside.site)
    with person.socket() as socket:
        job = socket.prompt("private words", params={"max_new_tokens": 5000})["job"]
        socket.until("token", job=job)
        outside.ask("DELETE FROM django_session WHERE session_key = %s", person.session_key)
        outside.cluster.restart()
        assert socket.close_code() == 4401
    num_heard = len(socket.of(job, "token"))
    with redis.Redis.from_url(outside.site.up["redis_url"]) as client:
        # What is written after the socket was closed, which nobody heard.
        wait_until(lambda: client.xlen(stream.tokens_key(UUID(job))) > num_heard + 10)
    wait_until(lambda: outside.ask("SELECT state FROM generation_job WHERE id = %s", job) == [("running",)])
