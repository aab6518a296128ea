"""The number of database connections of a running site, counted by PostgreSQL itself."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import psycopg

from tests.chat.sockets import Person, people
from tests.site import Site

CONCURRENCY = 4


def test_it_holds_no_more_connections_after_many_sockets_and_jobs(
    start_site: Callable[..., Site], database_url: str
) -> None:
    """Each consumer left a connection open in its thread, until the database took no more (django/channels#871)."""
    site = start_site(
        None,
        "--no-flower",
        "--concurrency",
        str(CONCURRENCY),
        DATABASE_URL=database_url,
        GENERATION_MODELS="mock=mock:?rate=200",
        GENERATION_MESSAGES_PER_MINUTE="1000",
    )
    crowd = people(site, 10)

    def visit(person: Person) -> None:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(person.socket()) for _ in range(10)]
            for socket in sockets[:5]:
                job = socket.prompt("one two three", params={"max_new_tokens": 5})["job"]
                assert socket.end(job)["type"] == "finished"

    with psycopg.connect(database_url, autocommit=True) as observer, ThreadPoolExecutor(10) as threads:

        def num_connections() -> int:
            found = observer.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
            assert found is not None
            return int(found[0])

        counts = []
        visits = [threads.submit(visit, person) for person in crowd]
        while wait(visits, timeout=0.05).not_done:
            counts.append(num_connections())
        for each in visits:
            each.result()
        counts.append(num_connections())
        ended = observer.execute("SELECT count(*) FROM generation_job WHERE state = 'finished'").fetchone()
        assert ended == (50,)
        assert len(counts) > 2
        # The tasks' threads, the worker's lease and writer, and the web process's few threads.
        assert max(counts) <= CONCURRENCY + 2 + 8, max(counts)
