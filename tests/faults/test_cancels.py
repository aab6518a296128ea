"""A stop reaches the engine, once and only when somebody asked for it; time limits stop a reply too."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import redis

from tests.chat.sockets import people, rows
from tests.faults.replies import check_whole, failure
from tests.mock_words import repeated
from tests.site import Site


@contextmanager
def control_messages(site: Site) -> Iterator[list[str]]:
    """What was said to any worker's control channel meanwhile; complete when the context is left."""
    heard: list[str] = []
    with redis.Redis.from_url(site.up["redis_url"]) as client, client.pubsub() as pubsub:
        pubsub.psubscribe("generation:control:*")
        pubsub.get_message(timeout=10)
        yield heard
        client.publish("generation:control:nobody", "the end")
        while (message := pubsub.get_message(timeout=10)) and message["data"] != b"the end":
            heard.append(message["data"].decode())


def is_success(line: str, job: str) -> bool:
    """Whether the task that ran the job came to its own end: a pool of threads can't kill one."""
    return "succeeded in" in line and job in line


def test_a_stopped_reply_takes_no_more_steps_and_says_so_only_then(faulty_site: Site) -> None:
    """The page said `cancelled` while the GPU went on decoding (celery/celery#8147, open-webui/open-webui#456)."""
    (person,) = people(faulty_site)
    text = "tell-steps@0 of this long reply"
    with person.socket() as socket:
        job = socket.prompt(text, params={"max_new_tokens": 1000})["job"]
        socket.until(lambda frame: frame["type"] == "token" and frame["seq"] == 10, job=job)
        socket.send("cancel", job=job)
        end = socket.end(job)
        steps_before = faulty_site.lines.text.count(f"step of {job}")
        assert end["type"] == "cancelled"
        words = end["seq"] - 1
        assert 10 <= words < 500
        assert socket.text(job) == failure(faulty_site, job)[3] == repeated(text, words)
        check_whole(faulty_site, socket, socket.prompt("goes on", params={"max_new_tokens": 50})["job"], "goes on", 50)
        sampled = f"step of {job} after {words - 1} tokens"
        faulty_site.lines.wait_for(sampled)
        steps = [line for line in faulty_site.lines.text.splitlines() if f"step of {job}" in line]
        assert steps_before <= len(steps) and steps[-1].endswith(sampled)
    faulty_site.lines.wait_for(lambda line: is_success(line, job))


def test_only_a_stop_sends_a_stop_and_only_one(faulty_site: Site) -> None:
    """Every normal end sent a useless abort to the engine, a real one none (ROCm/ATOM#1562)."""
    (person,) = people(faulty_site)
    with control_messages(faulty_site) as heard, person.socket() as socket:
        for number in range(20):
            text = f"reply {number} ends by itself"
            check_whole(faulty_site, socket, socket.prompt(text, params={"max_new_tokens": 3})["job"], text, 3)
    assert heard == []

    with control_messages(faulty_site) as heard:
        with person.socket() as socket:
            queued = socket.prompt("nobody watches this one", params={"max_new_tokens": 60})
            socket.until("token", job=queued["job"])
        with person.socket(queued["conversation"]) as socket:
            socket.send("follow", job=queued["job"])
            check_whole(faulty_site, socket, queued["job"], "nobody watches this one", 60)
    assert heard == []

    with control_messages(faulty_site) as heard:
        with person.socket() as socket:
            queued = socket.prompt("stopped and left", params={"max_new_tokens": 1000})
            job = queued["job"]
            socket.until("token", job=job)
            socket.send("cancel", job=job)
            socket.send("cancel", job=job)
        with person.socket(queued["conversation"]) as socket:
            socket.send("follow", job=job)
            assert socket.end(job)["type"] == "cancelled"
    assert heard == [job]


def test_a_reply_that_takes_too_long_ends_with_its_text_and_the_next_one_runs(
    start_faulty_site: Callable[..., Site],
) -> None:
    """Celery's own time limits do nothing in a pool of threads (celery/celery#9203)."""
    site = start_faulty_site("--concurrency", "1", GENERATION_JOB_TIMEOUT_SECONDS="3")
    (person,) = people(site)
    with person.socket() as socket:
        text = "this goes on for too long"
        job = socket.prompt(text, params={"max_new_tokens": 2000})["job"]
        behind = socket.prompt("the next one", params={"max_new_tokens": 5})["job"]
        end = socket.end(job)
        assert (end["type"], end["code"]) == ("failed", "deadline")
        assert "3 s" in end["message"]
        words = end["seq"] - 1
        assert 100 < words < 2000
        assert failure(site, job) == ("failed", "deadline", "", repeated(text, words))
        assert socket.text(job) == repeated(text, words)
        check_whole(site, socket, behind, "the next one", 5)
    site.lines.wait_for(lambda line: is_success(line, job))
    assert site.signal(signal.SIGTERM) == 0


def test_a_stop_whose_message_was_lost_is_found_in_the_row(faulty_site: Site) -> None:
    (person,) = people(faulty_site)
    with person.socket() as socket:
        job = socket.prompt("nobody told the worker", params={"max_new_tokens": 2000})["job"]
        socket.until("token", job=job)
        statement = "UPDATE generation_job SET cancel_requested_at = CURRENT_TIMESTAMP WHERE id = ?"
        rows(faulty_site, statement, UUID(job).hex)
        assert socket.end(job)["type"] == "cancelled"
