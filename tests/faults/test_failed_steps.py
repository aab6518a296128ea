"""Exceptions in the engine: who fails, what stays of the reply, and that the next prompt runs as before."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.chat.sockets import Person, Socket, people
from tests.faults.conftest import CONCURRENCY
from tests.faults.replies import check_whole, end_of, failure
from tests.mock_words import repeated
from tests.site import Site

GOOD = "a good prompt runs"
# Each with the exception that staff must find and whether it takes the whole step with it.
KINDS = {
    "raise-in-step": ("ArithmeticError: a step failed on purpose", True),
    "out-of-memory": ("MemoryError: out of memory on purpose", True),
    "raise-in-sampling": ("ArithmeticError: the logits are not finite", False),
    "raise-in-detokenising": ("ArithmeticError: detokenising failed on purpose", False),
}


@pytest.fixture
def ada(faulty_site: Site) -> Person:
    return people(faulty_site)[0]


@pytest.fixture
def socket(ada: Person) -> Iterator[Socket]:
    with ada.socket() as opened:
        yield opened


def check_good(site: Site, socket: Socket, words: int = 8) -> None:
    check_whole(site, socket, socket.prompt(GOOD, params={"max_new_tokens": words})["job"], GOOD, words)


def check_failure(site: Site, socket: Socket, job: str, text: str, words: int, error: str) -> None:
    """Failed as `engine_error` with so many words kept, which the page shows too; staff see why, people don't."""
    end = end_of(socket, job)
    assert (end["type"], end["code"], end["seq"]) == ("failed", "engine_error", words + 1)
    assert "purpose" not in end["message"] and "Error" not in end["message"]
    state, code, details, stored = failure(site, job)
    assert (state, code) == ("failed", "engine_error")
    assert error in details and "Traceback" in details
    assert stored == socket.text(job) == repeated(text, words)


@pytest.mark.parametrize("position", [0, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_prompt_fails_with_its_text_however_often_and_good_ones_run(
    faulty_site: Site, socket: Socket, kind: str, position: int
) -> None:
    """Readers hung for ever and each failure kept a slot (huggingface/transformers#22576, lm-sys/FastChat#3389)."""
    text = f"this will {kind}@{position}"
    jobs = [socket.prompt(text, params={"max_new_tokens": 30})["job"] for _ in range(2 * CONCURRENCY)]
    for job in jobs:
        end = end_of(socket, job)
        words = end["seq"] - 1
        # A failed step takes those along that had come less far.
        assert words <= position and (KINDS[kind][1] or words == position)
        check_failure(faulty_site, socket, job, text, words, KINDS[kind][0])
    assert max(frame["seq"] for job in jobs for frame in socket.of(job, "failed")) == position + 1
    check_good(faulty_site, socket)


def test_a_prompt_that_can_not_be_encoded_fails_and_good_ones_run(faulty_site: Site, socket: Socket) -> None:
    text = "this will raise-in-encoding@0"
    for _ in range(2 * CONCURRENCY):
        job = socket.prompt(text)["job"]
        check_failure(faulty_site, socket, job, text, 0, "ArithmeticError: encoding failed on purpose")
    check_good(faulty_site, socket)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_sequence_leaves_its_neighbours_alone_and_a_failed_step_does_not(
    faulty_site: Site, ada: Person, kind: str
) -> None:
    error, takes_all = KINDS[kind]
    with ExitStack() as stack:
        sockets = [stack.enter_context(ada.socket()) for _ in range(3)]
        long = "these neighbours have begun before and go on for long"
        jobs = [socket.prompt(long, params={"max_new_tokens": 200})["job"] for socket in sockets[:2]]
        for socket, job in zip(sockets, jobs, strict=False):
            socket.until("token", job=job)
        text = f"this will {kind}@4"
        failing = sockets[2].prompt(text, params={"max_new_tokens": 30})["job"]
        check_failure(faulty_site, sockets[2], failing, text, 4, error)
        for socket, job in zip(sockets, jobs, strict=False):
            if takes_all:
                words = socket.end(job)["seq"] - 1
                assert 4 <= words < 200
                check_failure(faulty_site, socket, job, long, words, error)
            else:
                check_whole(faulty_site, socket, job, long, 200)
        check_good(faulty_site, sockets[0])


def tokens_per_second(site: Site, socket: Socket) -> float:
    """Of one plain reply, from its first token to its last."""
    job = socket.prompt(GOOD, params={"max_new_tokens": 60})["job"]
    socket.until("token", job=job)
    began = time.monotonic()
    check_whole(site, socket, job, GOOD, 60)
    return 59 / (time.monotonic() - began)


def test_a_hundred_starts_and_stops_leave_every_slot_free(faulty_site: Site, ada: Person) -> None:
    """After one cancel in mid-stream no reply ever finished, and the health page stayed green
    (theroyallab/tabbyAPI#428, openvinotoolkit/model_server#4428).
    """
    chance = random.Random(11)
    with ada.socket() as socket:
        before = tokens_per_second(faulty_site, socket)
        going: dict[str, int] = {}
        for _ in range(100):
            # 0: stopped as soon as it is accepted, so waiting or just beginning; 8: with its last token.
            stop_at = chance.choice([0, 0, 1, 2, 5, 7, 8])
            job = socket.prompt(GOOD, params={"max_new_tokens": 8})["job"]
            going[job] = stop_at
            if stop_at == 0:
                socket.send("cancel", job=job)
            elif chance.random() < 0.5:
                socket.until(lambda frame, seq=stop_at: frame.get("seq", 0) >= seq, job=job)
                socket.send("cancel", job=job)
        for job in going:
            end = end_of(socket, job)
            state, _, _, stored = failure(faulty_site, job)
            assert state == end["type"] and state in ("finished", "cancelled")
            assert stored == socket.text(job) == repeated(GOOD, end["seq"] - 1 if end["seq"] else 0)
        assert tokens_per_second(faulty_site, socket) > 0.5 * before
        jobs = [socket.prompt(GOOD, params={"max_new_tokens": 200})["job"] for _ in range(CONCURRENCY)]
        for job in jobs:
            check_whole(faulty_site, socket, job, GOOD, 200)
        # Each got its first token before the first one's end: all slots are there.
        place = socket.frames.index
        assert max(place(socket.of(job, "token")[0]) for job in jobs) < min(
            place(socket.of(job, "finished")[0]) for job in jobs
        )
