"""Two at a time: replies that grow together, and people who wait for their turn."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.chat.sockets import ENDS, Frame, Socket, job_row, people, rows
from tests.site import Site, running


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that writes two replies at once, 25 tokens a second each."""
    environ = {"GENERATION_MODELS": "mock=mock:?rate=25"}
    site = Site(tmp_path_factory.mktemp("pair"), "--concurrency", "2", "--no-flower", **environ)
    with running(site):
        yield site


class Listeners:
    """Reads several sockets at once into one list, in the order of arrival."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Frame]] = []
        self._threads: list[threading.Thread] = []

    def listen(self, name: str, socket: Socket, job: str) -> None:
        """Read the socket to the end of that job."""

        def read() -> None:
            while True:
                frame = socket.next()
                if frame.get("job") == job:
                    self.heard.append((name, frame))
                    if frame["type"] in ENDS:
                        return

        self._threads.append(threading.Thread(target=read))
        self._threads[-1].start()

    def wait(self) -> list[tuple[str, Frame]]:
        for thread in self._threads:
            thread.join()
        return self.heard


def test_two_replies_grow_in_turn_and_the_third_person_waits_for_the_first_end(pair: Site) -> None:
    ada, bob, eve = people(pair, 3)
    with ada.socket() as a, bob.socket() as b, eve.socket() as e:
        jobs = {}
        for name, socket, length in (("a", a, 40), ("b", b, 60)):
            jobs[name] = socket.prompt("words and words", params={"max_new_tokens": length})["job"]
            socket.until("started", job=jobs[name])
        waiting = e.prompt("my turn", params={"max_new_tokens": 10})
        assert (waiting["position"], waiting["queue_size"]) == (1, 1)
        listeners = Listeners()
        for name, socket, job in (("a", a, jobs["a"]), ("b", b, jobs["b"]), ("e", e, waiting["job"])):
            listeners.listen(name, socket, job)
        heard = listeners.wait()
    order = [name for name, frame in heard if frame["type"] == "token"]
    both = order[: order.index("e")]
    turns = sum(one != next_one for one, next_one in pairwise(both))
    assert turns > len(both) / 3, "".join(order)
    first_end = next(index for index, (_, frame) in enumerate(heard) if frame["type"] in ENDS)
    started = next(index for index, (name, frame) in enumerate(heard) if (name, frame["type"]) == ("e", "started"))
    assert heard[first_end][0] == "a"
    assert heard[started][1]["waited_seconds"] > 0
    # It began when the first ended and beside the second: at most two at once, and no pause.
    assert order.index("e") < len(order) - 1 - order[::-1].index("b")
    assert running_at_once(pair, [*jobs.values(), waiting["job"]]) == 2


def running_at_once(site: Site, jobs: list[str]) -> int:
    """The largest number of these jobs that ran at any instant, as their rows tell it."""
    changes: list[tuple[Any, int]] = []
    for job in jobs:
        statement = "SELECT started_at, ended_at FROM generation_job WHERE id = ?"
        started, ended = rows(site, statement, UUID(job).hex)[0]
        changes += [(started, 1), (ended, -1)]
    running, most = 0, 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def test_ten_prompts_of_ten_people_start_in_the_order_sent(pair: Site) -> None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(person.socket()) for person in people(pair, 10)]
        jobs = [socket.prompt("in good order", params={"max_new_tokens": 25})["job"] for socket in sockets]
        sockets[-1].end(jobs[-1])
        places = [frame["position"] for frame in sockets[-1].of(jobs[-1], "queued")]
        for socket, job in zip(sockets[:-1], jobs[:-1], strict=True):
            socket.end(job)
    statement = "SELECT started_at FROM generation_job WHERE id = ?"
    starts = [rows(pair, statement, UUID(job).hex)[0][0] for job in jobs]
    assert starts == sorted(starts)
    assert running_at_once(pair, jobs) == 2
    # Told at most once a second, so not each step; but only ever forward.
    assert places == sorted(set(places), reverse=True)
    assert places[0] > 1


@pytest.fixture
def busy(pair: Site) -> Iterator[Callable[[], None]]:
    """Both places are taken until the returned function is called."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(person.socket()) for person in people(pair, 2)]
        jobs = [socket.prompt("busy", params={"max_new_tokens": 2000})["job"] for socket in sockets]
        for socket, job in zip(sockets, jobs, strict=True):
            socket.until("started", job=job)

        def end() -> None:
            while jobs:
                socket, job = sockets.pop(), jobs.pop()
                socket.send("cancel", job=job)
                socket.end(job)

        yield end
        end()


def test_a_prompt_that_is_stopped_in_line_leaves_it(pair: Site, busy: Callable[[], None]) -> None:
    """gradio-app/gradio#13323: stopping a waiting prompt left it in the queue, and the count grew."""
    impatient, patient = people(pair, 2)
    with impatient.socket() as socket, patient.socket() as other:
        stopped = []
        for _ in range(5):
            queued = socket.prompt("never mind")
            assert (queued["position"], queued["queue_size"]) == (1, 1)
            socket.send("cancel", job=queued["job"])
            assert socket.end(queued["job"]) == {
                "type": "cancelled",
                "seq": 0,
                "job": queued["job"],
                "conversation": queued["conversation"],
            }
            stopped.append(queued["job"])
        client_id = str(uuid4())
        socket.send("prompt", id=client_id, text="by its own id")
        socket.send("cancel", id=client_id)
        stopped.append(socket.until("queued")["job"])
        assert socket.end(stopped[-1])["type"] == "cancelled"
        queued = other.prompt("at last", params={"max_new_tokens": 2})
        assert (queued["position"], queued["queue_size"]) == (1, 1)
        busy()
        assert other.end(queued["job"])["type"] == "finished"
    for job in stopped:
        assert job_row(pair, job)[:3] == ("cancelled", "", 0)
        assert rows(pair, "SELECT epoch FROM generation_job WHERE id = ?", UUID(job).hex) == [(0,)]


def test_stopping_one_tells_those_behind_that_they_moved_up(pair: Site, busy: Callable[[], None]) -> None:
    first, second = people(pair, 2)
    with first.socket() as ahead, second.socket() as behind:
        front = ahead.prompt("in front")
        back = behind.prompt("behind")
        assert (front["position"], back["position"], back["queue_size"]) == (1, 2, 2)
        ahead.send("cancel", job=front["job"])
        moved = behind.until("queued", job=back["job"])
        assert (moved["position"], moved["queue_size"]) == (1, 1)
        for key in ("message", "reply", "client_id", "text", "conversation"):
            assert moved[key] == back[key]
        behind.send("cancel", job=back["job"])
        behind.end(back["job"])


def test_one_persons_many_prompts_stop_at_their_limit(pair: Site, busy: Callable[[], None]) -> None:
    """vllm-project/vllm#18826: one client's prompts without end took all memory and everybody's place."""
    greedy, other = people(pair, 2)
    with greedy.socket() as socket, other.socket() as patient:
        limit = socket.hello["limits"]["max_jobs_per_user"]
        accepted = [socket.prompt(f"prompt {number}")["job"] for number in range(limit)]
        reference = str(uuid4())
        socket.raw(json.dumps({"type": "prompt", "id": reference, "text": "one too many"}))
        refused = socket.error()
        assert (refused["code"], refused["ref"]) == ("too_many_jobs", reference)
        mine = patient.prompt("just one")
        assert mine["position"] <= 3
        patient.send("cancel", job=mine["job"])
        patient.end(mine["job"])
        for job in accepted:
            socket.send("cancel", job=job)
        for job in accepted:
            if not [frame for frame in socket.of(job) if frame["type"] in ENDS]:
                assert socket.end(job)["type"] == "cancelled"
