"""Redis is killed, cut off or frozen while people talk: nothing is lost, and nobody has to restart anything."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import UUID, uuid4

import pytest
from websockets.exceptions import ConnectionClosed

from chatsite.local import ports
from tests.chat.sockets import Person, people, rows, wait_for_rows
from tests.faults.conftest import ENVIRONMENT
from tests.faults.outages import cut_connections, frozen_redis, keep_redis_down, num_connections, restart_redis
from tests.faults.replies import check_whole
from tests.site import Site, running

# Pools keep what was open at the busiest moment; what grows by every drop or message is a leak.
SLACK = 12


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Its Redis and its web process are killed, its worker never."""
    site = Site(tmp_path_factory.mktemp("outages"), "--no-flower", "--concurrency", "4", **ENVIRONMENT)
    with running(site):
        yield site


@pytest.fixture
def ada(site: Site) -> Person:
    return people(site)[0]


def test_open_sockets_go_on_in_the_same_reply_when_redis_restarts(site: Site, ada: Person) -> None:
    """Every open socket died with a traceback or stayed open and deaf (django/channels_redis#20,
    django/channels_redis#303).
    """
    before = site.lines.count
    with ExitStack() as stack:
        sockets = [stack.enter_context(ada.socket()) for _ in range(3)]
        text = "this goes on"
        jobs = [socket.prompt(text, params={"max_new_tokens": 250})["job"] for socket in sockets]
        for socket, job in zip(sockets, jobs, strict=True):
            socket.until(lambda frame: frame["type"] == "token" and frame["seq"] == 20, job=job)
        restart_redis(site)
        for socket, job in zip(sockets, jobs, strict=True):
            check_whole(site, socket, job, text, 250)
            check_whole(site, socket, socket.prompt("next", params={"max_new_tokens": 3})["job"], "next", 3)
            assert {frame["origin"] for frame in socket.of(job, "token")} == {1}
    assert "Exception inside application" not in site.lines.text_after(before)


@pytest.mark.parametrize(
    ("rounds", "seconds"), [(1, 2), pytest.param(3, 10, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_the_same_worker_takes_work_again_after_drops_in_a_row(
    site: Site, ada: Person, rounds: int, seconds: float
) -> None:
    """A worker connected again, looked alive and never took a task until it was restarted (celery/celery#8091,
    celery/celery#8030, celery/celery#10205).
    """
    worker = site.up["pids"]["worker"]
    with ada.socket() as socket:
        for number in range(rounds):
            keep_redis_down(site, seconds)
            restart_redis(site)
            restart_redis(site)
            text = f"round {number}"
            check_whole(site, socket, socket.prompt(text, params={"max_new_tokens": 5})["job"], text, 5)
    assert site.up["pids"]["worker"] == worker


def test_a_reply_begins_with_its_first_character_though_redis_cuts_everybody_off(site: Site, ada: Person) -> None:
    """What was published before the reader had joined the group was missing (django/channels#1244)."""
    with ada.socket() as socket:
        for number in range(4):
            text = f"cut {number} off"
            client_id = str(uuid4())
            socket.send("prompt", id=client_id, text=text, model="fast", params={"max_new_tokens": 100})
            cut_connections(site)
            job = socket.until("queued")["job"]
            cut_connections(site)
            check_whole(site, socket, job, text, 100)


def test_connections_do_not_grow_with_drops(site: Site, ada: Person) -> None:
    """They grew with every message, or their pool was another loop's (django/channels_redis#125,
    django/channels_redis#332).
    """
    printed = site.lines.count
    with ada.socket() as socket:

        def talk() -> None:
            jobs = [socket.prompt("words", params={"max_new_tokens": 20})["job"] for _ in range(4)]
            for job in jobs:
                check_whole(site, socket, job, "words", 20)

        talk()
        before = num_connections(site)
        for _ in range(3):
            cut_connections(site)
            talk()
        for _ in range(5):
            talk()
        assert num_connections(site) <= before + SLACK
    assert "RuntimeError" not in site.lines.text_after(printed)


def test_signing_out_closes_the_socket_while_redis_does_not_answer(site: Site, ada: Person) -> None:
    """An old socket worked on after its sign-in was over (django/channels#718)."""
    with ada.socket() as socket:
        job = socket.prompt("private words", params={"max_new_tokens": 1000})["job"]
        socket.until("token", job=job)
        with frozen_redis(site):
            ada.post("/accounts/logout/")
            assert socket.close_code() == 4401


SUBMIT = """
from django.contrib.auth import get_user_model
from django.db import transaction
from generation import queue

def ask(text):
    user = get_user_model().objects.get(username={name!r})
    with transaction.atomic():
        queue.submit(user, [{{"role": "user", "content": text}}], params={{"max_new_tokens": 4}})
        if text == "never":
            raise ZeroDivisionError

ask("commit me")
try:
    ask("never")
except ZeroDivisionError:
    pass
"""


def test_a_prompt_committed_without_a_broker_runs_and_one_rolled_back_does_not(site: Site, ada: Person) -> None:
    """Workers were sent ids of rows that they couldn't find, or a commit failed with its broker
    (celery/celery#8976, getsentry/sentry#89284).
    """
    nowhere = f"redis://127.0.0.1:{ports.any_free()}/0"
    asked = site.manage("shell", "--no-imports", "-c", SUBMIT.format(name=ada.name), REDIS_URL=nowhere)
    assert asked.returncode == 0, asked.stderr
    own = "FROM generation_job j JOIN auth_user u ON u.id = j.user_id WHERE u.username = ?"
    wait_for_rows(site, f"SELECT 1 {own} AND state = 'finished'", ada.name)
    assert rows(site, f"SELECT text {own}", ada.name) == [("commit me commit me",)]


def test_a_prompt_whose_answer_died_with_the_web_process_is_one_job_when_it_is_sent_again(
    site: Site, ada: Person
) -> None:
    client_id = str(uuid4())
    count = "SELECT 1 FROM generation_job WHERE client_id = ?"
    before = site.lines.count
    with ada.socket() as socket:
        # The row is written; its wake waits for Redis, and the answer behind it.
        with frozen_redis(site):
            socket.send("prompt", id=client_id, text="only once", params={"max_new_tokens": 12})
            wait_for_rows(site, count, UUID(client_id).hex)
            os.kill(site.up["pids"]["web"], signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            socket.until("nothing more")
        assert client_id not in [frame.get("client_id") for frame in socket.frames]
    site.lines.wait_for("started again: web", after=before)
    site.lines.wait_for(lambda line: "Listening on TCP" in line, after=before)
    with ada.socket() as socket:
        job = socket.prompt("only once", client_id=client_id, params={"max_new_tokens": 12})["job"]
        check_whole(site, socket, job, "only once", 12)
    assert len(rows(site, count, UUID(client_id).hex)) == 1
    assert rows(site, "SELECT count(*) FROM chat_replyjob WHERE job_id = ?", UUID(job).hex) == [(1,)]
