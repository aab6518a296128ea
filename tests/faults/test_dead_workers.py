"""Workers that are killed, told to stop, frozen or stuck in the middle of replies; prompts that kill their worker."""

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID

import pytest

from generation.lease import WEDGED_STATUS
from generation.worker import DEVICE_LOST_STATUS
from tests.chat.sockets import Socket, people, rows
from tests.faults.conftest import ENVIRONMENT
from tests.faults.replies import check_whole, failure, worker_of
from tests.faults.workers import SecondWorker
from tests.generation.workers import wait_until
from tests.mock_words import repeated
from tests.site import Site, frozen, running

StartFaultySite = Callable[..., Site]


@pytest.mark.parametrize(("position", "rate"), [(0, 3), pytest.param(2, 50, marks=pytest.mark.slow)])
def test_a_prompt_that_kills_its_worker_each_time_fails_alone(
    start_faulty_site: StartFaultySite, position: int, rate: int
) -> None:
    """A slow model's neighbours have no token yet when the worker dies: they must not be taken for the cause."""
    site = start_faulty_site("--concurrency", "4", GENERATION_MODELS=f"mock=mock:?rate={rate}")
    (person,) = people(site)
    with ExitStack() as stack:
        sockets = [stack.enter_context(person.socket()) for _ in range(6)]
        site.manage("queue", "pause", "gpu")
        texts = [f"neighbour {number} says this" for number in range(6)]
        texts[2] = f"poison die@{position} says this"
        jobs = [
            socket.prompt(text, params={"max_new_tokens": 6})["job"]
            for socket, text in zip(sockets, texts, strict=True)
        ]
        site.manage("queue", "resume", "gpu")
        end = sockets[2].end(jobs[2])
        assert (end["type"], end["code"]) == ("failed", "worker_lost")
        assert sockets[2].text(jobs[2]) == failure(site, jobs[2])[3] == repeated(texts[2], position)
        for number in (0, 1, 3, 4, 5):
            check_whole(site, sockets[number], jobs[number], texts[number], 6)


# Every fifth word ends what might have become a stop string, so some text is always held back for a while.
TEXT = "one two three four five"
STOP = ["three four six"]


@pytest.fixture
def second() -> Iterator[Callable[[Site], SecondWorker]]:
    """Start a second worker on a site: it is ended after the test."""
    started: list[SecondWorker] = []

    def start(site: Site) -> SecondWorker:
        started.append(SecondWorker(site))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()
        print(worker.lines.text)


def begin(sockets: list[Socket], words: int) -> list[str]:
    """One reply in each socket, each with some tokens already."""
    params = {"max_new_tokens": words, "stop": STOP}
    jobs = [socket.prompt(TEXT, params=params)["job"] for socket in sockets]
    for socket, job in zip(sockets, jobs, strict=True):
        socket.until(lambda frame: frame["type"] == "token" and frame["seq"] == 4, job=job)
    return jobs


def claims(site: Site, job: str) -> tuple[int, int, int]:
    """(epoch, attempt, origin) of a job's row."""
    epoch, attempt, origin = rows(
        site, "SELECT epoch, attempt, origin FROM generation_job WHERE id = ?", UUID(job).hex
    )[0]
    return epoch, attempt, origin


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_another_worker_goes_on_with_the_next_token(
    start_faulty_site: StartFaultySite, second: Callable[[Site], SecondWorker], number: int
) -> None:
    """A killed worker's jobs stayed `running` for ever or began anew (ui-insight/vandalizer#825). With a lease of a
    minute only the worker's own word, or its dead process, can have handed them over.
    """
    site = start_faulty_site(
        "--concurrency", "2", GENERATION_MODELS="mock=mock:?rate=20", GENERATION_LEASE_SECONDS="60"
    )
    (person,) = people(site)
    with ExitStack() as stack:
        sockets = [stack.enter_context(person.socket()) for _ in range(2)]
        words = 300  # a quarter of a minute, in which the second worker must be there
        begun = begin(sockets, words)
        second(site)
        os.kill(site.up["pids"]["worker"], number)
        for socket, job in zip(sockets, begun, strict=True):
            check_whole(site, socket, job, TEXT, words)
            assert claims(site, job) == (2, 1, 1)
            if number == signal.SIGTERM:  # a death counts as a try until the next claim finds its tokens
                assert [frame["attempt"] for frame in socket.of(job, "started")] == [1, 1]
                assert worker_of(site, job).startswith("second"), "it waited for a new worker"


def test_a_worker_that_was_frozen_writes_nothing_late_and_takes_new_jobs(
    start_faulty_site: StartFaultySite, second: Callable[[Site], SecondWorker]
) -> None:
    site = start_faulty_site("--concurrency", "2", GENERATION_MODELS="mock=mock:?rate=20")
    (person,) = people(site)
    with ExitStack() as stack:
        sockets = [stack.enter_context(person.socket()) for _ in range(2)]
        begun = begin(sockets, 200)
        other = second(site)
        pid = site.up["pids"]["worker"]
        with frozen(pid):
            for socket, job in zip(sockets, begun, strict=True):
                socket.until("started", job=job)
                socket.until("token", job=job)
        for job in begun:
            site.lines.wait_for(f"job {job} went on elsewhere; epoch 1 writes nothing more")
        assert [failure(site, job)[0] for job in begun] == ["running", "running"]
        for socket, job in zip(sockets, begun, strict=True):
            check_whole(site, socket, job, TEXT, 200)
            assert claims(site, job) == (2, 1, 1)
        other.stop()
        assert site.up["pids"]["worker"] == pid
        for socket in sockets:
            job = socket.prompt(TEXT, params={"max_new_tokens": 5})["job"]
            check_whole(site, socket, job, TEXT, 5)


def readiness(site: Site) -> list[str]:
    """The reasons that `/health/ready` gives; none when it is green."""
    try:
        with urllib.request.urlopen(f"{site.url}/health/ready") as answer:
            assert answer.status == 200
            return []
    except urllib.error.HTTPError as error:
        with error:
            assert error.code == 503
            reasons: list[str] = json.load(error)["reasons"]
            return reasons


def check_replaced(site: Site, word: str, status: int, meanwhile: Callable[[], None] = lambda: None) -> None:
    """What the word asks for ends the worker with that status; another goes on with that reply and its neighbour's."""
    pid = site.up["pids"]["worker"]
    (person,) = people(site)
    with person.socket() as culprit, person.socket() as neighbour:
        job = neighbour.prompt("a neighbour", params={"max_new_tokens": 400})["job"]
        neighbour.until("token", job=job)
        text = f"this will {word} once"
        asked = culprit.prompt(text, params={"max_new_tokens": 20})["job"]
        meanwhile()
        site.lines.wait_for(f"ended with exit status {status}")
        check_whole(site, culprit, asked, text, 20)
        check_whole(site, neighbour, job, "a neighbour", 400)
    assert site.up["pids"]["worker"] != pid


@pytest.fixture(scope="module")
def replacing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site for what ends a worker of itself."""
    site = Site(tmp_path_factory.mktemp("replacing"), "--no-flower", "--concurrency", "2", **ENVIRONMENT)
    with running(site):
        yield site


def test_a_step_that_never_returns_ends_its_worker_and_no_reply(replacing: Site) -> None:
    """The health page stayed green while nothing moved any more (theroyallab/tabbyAPI#428), and a time limit had no
    effect on a thread (celery/celery#9203).
    """

    def health_turns_red() -> None:
        assert wait_until(lambda: readiness(replacing)) == ["no worker is running for queue gpu"]

    check_replaced(replacing, "hang@3#1", WEDGED_STATUS, health_turns_red)
    wait_until(lambda: not readiness(replacing))


def test_a_worker_that_lost_its_device_fails_nobody(replacing: Site) -> None:
    """After an error that a CUDA context does not survive every later step fails too: such a worker would take one
    job after the other and fail them all (vllm-project/vllm#5822, ggml-org/llama.cpp#19367).
    """
    check_replaced(replacing, "lose-device@3#1", DEVICE_LOST_STATUS)


@pytest.mark.slow
def test_a_prompt_that_hangs_its_worker_each_time_fails_in_the_end(start_faulty_site: StartFaultySite) -> None:
    """Time limits that count on signals never reach a thread in a step that doesn't return (celery/celery#9203)."""
    site = start_faulty_site("--concurrency", "2")
    (person,) = people(site)
    with person.socket() as socket:
        text = "this will hang@3 always"
        job = socket.prompt(text, params={"max_new_tokens": 20})["job"]
        behind = socket.prompt("a good one", params={"max_new_tokens": 20})["job"]
        wait_until(lambda: failure(site, job)[0] == "failed")
        assert failure(site, job) == ("failed", "worker_lost", "", repeated(text, 3))
        check_whole(site, socket, behind, "a good one", 20)
