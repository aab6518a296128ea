"""Many people, slow readers and a locked database while workers are killed: everybody gets their own words, whole."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID, uuid4

import pytest

from tests.chat.sockets import people, rows, wait_for_rows
from tests.faults.conftest import ENVIRONMENT
from tests.faults.deaf import deaf_socket
from tests.faults.outages import locked_database
from tests.faults.replies import check_whole, end_of, failure
from tests.faults.workers import SecondWorker
from tests.generation.workers import wait_until
from tests.mock_words import repeated
from tests.site import Site, running

NUM_PEOPLE = 16


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("kills"), "--no-flower", "--concurrency", "4", **ENVIRONMENT)
    with running(site):
        yield site


@pytest.fixture
def start_second(site: Site) -> Iterator[Callable[[], SecondWorker]]:
    started: list[SecondWorker] = []

    def start() -> SecondWorker:
        started.append(SecondWorker(site))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()
        print(worker.lines.text)


def kill(worker: SecondWorker) -> None:
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()


def held_by(site: Site, worker: SecondWorker) -> str:
    """A job that this worker runs, as soon as there is one."""
    statement = "SELECT job.id FROM generation_job job JOIN generation_worker worker ON worker.id = job.worker_id"
    statement += " WHERE job.state = 'running' AND worker.pid = ?"
    return str(UUID(wait_for_rows(site, statement, worker.process.pid)[0][0]))


def some_went_on(site: Site, jobs: list[str]) -> bool:
    """Whether any of them was claimed again: its first worker died."""
    statement = "SELECT 1 FROM generation_job WHERE id = ? AND epoch > 1"
    return any(rows(site, statement, UUID(job).hex) for job in jobs)


def talk_through_kills(site: Site, start_second: Callable[[], SecondWorker]) -> str:
    """Two rounds of prompts of everybody at once, each person's words their own; a worker dies within each.
    What those workers printed.
    """
    printed = ""
    crowd = people(site, NUM_PEOPLE)
    with ExitStack() as stack:
        sockets = [stack.enter_context(person.socket()) for person in crowd]
        for _ in range(2):
            worker = start_second()
            texts = [" ".join(uuid4().hex for _ in range(number % 3 + 1)) for number in range(NUM_PEOPLE)]
            asked = [
                socket.prompt(text, params={"max_new_tokens": 120 + number})["job"]
                for number, (socket, text) in enumerate(zip(sockets, texts, strict=True))
            ]
            held = held_by(site, worker)
            sockets[asked.index(held)].until("token", job=held)
            kill(worker)
            for number, (socket, job, text) in enumerate(zip(sockets, asked, texts, strict=True)):
                check_whole(site, socket, job, text, 120 + number)
            assert some_went_on(site, asked), "the kill hit nothing"
            printed += worker.lines.wait_for_end()
    return printed


def test_everybody_gets_their_own_words_while_a_worker_dies_in_each_round(
    site: Site, start_second: Callable[[], SecondWorker]
) -> None:
    """People were given other people's answers (ggml-org/llama.cpp#6681, ggml-org/llama.cpp#10072), also in a second
    batch on the same server (huggingface/transformers#45943).
    """
    talk_through_kills(site, start_second)


@contextmanager
def lock_storm(site: Site) -> Iterator[None]:
    """Somebody else writes for half of the time."""
    stopping = threading.Event()

    def hold() -> None:
        while not stopping.wait(0.1):
            with locked_database(site):
                stopping.wait(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def test_nothing_fails_on_a_locked_database_while_a_worker_dies_in_each_round(
    site: Site, start_second: Callable[[], SecondWorker]
) -> None:
    """`database is locked` came at once, whatever the timeout (simonw/django_sqlite_benchmark#6,
    learningequality/kolibri#13878).
    """
    before = site.lines.count
    with lock_storm(site):
        printed = talk_through_kills(site, start_second)
    assert "database is locked" not in site.lines.text_after(before) + printed


@pytest.mark.parametrize("html", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["text", "html"])
def test_a_reader_that_read_nothing_while_the_worker_was_killed_gets_the_whole_text(
    site: Site, start_second: Callable[[], SecondWorker], html: bool
) -> None:
    """After a hundred fast messages the rest was gone without a word (django/channels_redis#131)."""
    words, text = 2000, "nobody reads this yet"
    (person,) = people(site)
    worker = start_second()
    with deaf_socket(person, html=html) as socket:
        # More than the site's own worker takes, so the other one has some of them too.
        jobs = [socket.prompt(text, model="fast", params={"max_new_tokens": words})["job"] for _ in range(6)]
        held_by(site, worker)
        kill(worker)
        for job in jobs:
            wait_until(lambda job=job: failure(site, job)[0] == "finished")
        assert some_went_on(site, jobs), "the kill hit nothing"
        socket.acknowledges = True
        for job in jobs:
            # What came before the last prompt's answer has been read and not acknowledged.
            for frame in socket.of(job, "token", "html")[-1:]:
                socket.send("ack", job=job, seq=frame["seq"])
            assert failure(site, job)[3] == repeated(text, words)
            if html:
                assert end_of(socket, job)["seq"] == words + 1
                blocks = {index: block for frame in socket.of(job, "html") for index, block in frame["changes"]}
                assert "".join(blocks.values()).count("nobody") == words // 4
            else:
                check_whole(site, socket, job, text, words)


def test_each_end_says_which_it_is_though_the_worker_was_killed(site: Site) -> None:
    """Cut replies looked complete (griffinwork40/agent-afk#635, jwadow/kiro-gateway#113)."""
    (person,) = people(site)
    with person.socket() as socket:
        text = " ".join(f"w{number}" for number in range(80))

        def ask(**params: object) -> str:
            job: str = socket.prompt(text, params={"max_new_tokens": 100, **params})["job"]
            return job

        length, stop_string = ask(), ask(stop=["w60 w61"])
        socket.until(lambda frame: frame["type"] == "token" and frame["seq"] == 3, job=stop_string)
        os.kill(site.up["pids"]["worker"], signal.SIGKILL)
        cancelled = ask(max_new_tokens=5000)
        assert end_of(socket, length)["reason"] == "length"
        assert socket.text(length) == repeated(text, 100)
        assert end_of(socket, stop_string)["reason"] == "stop_string"
        assert socket.text(stop_string) == repeated(text, 60) + " "
        socket.until("token", job=cancelled)
        os.kill(site.up["pids"]["worker"], signal.SIGKILL)
        socket.send("cancel", job=cancelled)
        end = socket.end(cancelled)
        assert end["type"] == "cancelled"
        said = failure(site, cancelled)[3]
        assert said == socket.text(cancelled) == repeated(text, len(said.split()))
