"""Each bound on what people may ask, over a real socket: taken at it, refused one past it, and nothing written then."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.chat.sockets import Frame, Socket, people, rows, set_quota
from tests.site import Site, running

CHARS, MESSAGES, WAITING = 40, 4, 2


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    environ = {
        "GENERATION_MODELS": "mock=mock:?rate=200",
        "GENERATION_MAX_PROMPT_CHARS": str(CHARS),
        "GENERATION_MESSAGES_PER_MINUTE": str(MESSAGES),
        "GENERATION_MAX_QUEUE_SIZE": str(WAITING),
    }
    site = Site(tmp_path_factory.mktemp("bounded"), "--concurrency", "1", "--no-flower", **environ)
    with running(site):
        yield site


@pytest.fixture
def paused(bounded: Site) -> Iterator[None]:
    """Nothing starts meanwhile."""
    assert bounded.manage("queue", "pause").returncode == 0
    yield
    assert bounded.manage("queue", "resume").returncode == 0


def answered(socket: Socket, text: str = "a b") -> Frame:
    """Ask and read on to the reply's end."""
    return socket.end(socket.prompt(text, params={"max_new_tokens": 2})["job"])


def refusal(site: Site, socket: Socket, kind: str = "prompt", **fields: Any) -> Frame:
    """The refusal of this frame, which names it; nothing may have been written."""
    everything = "SELECT (SELECT count(*) FROM generation_job), (SELECT count(*) FROM chat_conversation)"
    everything += ", (SELECT count(*) FROM chat_message)"
    before = rows(site, everything)
    reference = str(uuid4())
    socket.send(kind, id=reference, **({"text": "a b"} if kind == "prompt" else {}) | fields)
    answer = socket.until(lambda frame: reference in (frame.get("ref"), frame.get("client_id")))
    assert answer["type"] == "error", answer
    assert rows(site, everything) == before
    socket.still_answers()
    return answer


def test_a_prompt_of_one_character_too_many_is_refused(bounded: Site) -> None:
    [ada] = people(bounded)
    with ada.socket() as socket:
        assert socket.hello["limits"]["max_prompt_chars"] == CHARS
        refused = refusal(bounded, socket, text="\U0001f600" * (CHARS + 1))
        assert refused["code"] == "prompt_too_long"
        assert refused["message"] == f"The message has {CHARS + 1} characters; {CHARS} are allowed."
        assert answered(socket, "\U0001f600" * CHARS)["type"] == "finished"


def test_one_message_more_than_a_minute_allows_is_refused_with_the_time_of_the_next(bounded: Site) -> None:
    [ada] = people(bounded)
    with ada.socket() as socket:
        for _ in range(MESSAGES):
            answered(socket)
        refused = refusal(bounded, socket)
        assert refused["code"] == "rate_limited"
        said = re.fullmatch(rf"{MESSAGES} messages a minute are allowed; the next one in (\d+) s\.", refused["message"])
        assert said and 1 <= int(said[1]) <= 60


def test_a_prompt_that_finds_the_line_full_is_refused_until_a_place_is_free(bounded: Site, paused: None) -> None:
    *early, late = people(bounded, WAITING + 1)
    jobs = []
    for person in early:
        with person.socket() as socket:
            jobs.append(socket.prompt("a b")["job"])
    with late.socket() as socket:
        refused = refusal(bounded, socket)
        assert refused["code"] == "queue_full"
        assert f"{WAITING} prompts are waiting; {WAITING} are allowed." in refused["message"]
        assert bounded.manage("queue", "cancel", jobs[0]).returncode == 0
        assert socket.prompt("a b")["position"] == WAITING


def test_a_prompt_past_the_quota_is_refused_with_what_was_used_and_when_there_is_more(bounded: Site) -> None:
    [ada] = people(bounded)
    set_quota(bounded, ada.name, 5)
    with ada.socket() as socket:
        answered(socket)  # 2 tokens asked, 2 said: one below the quota
        last = answered(socket)  # 6 asked with what was said before, 2 said
        assert last["type"] == "finished"
        reply = next(frame["reply"] for frame in socket.frames if frame.get("job") == last["job"])
        for kind, fields in (("prompt", {}), ("regenerate", {"message": reply}), ("continue", {"message": reply})):
            refused = refusal(bounded, socket, kind, **fields)
            assert refused["code"] == "quota_exceeded", kind
            figures = (
                r"You have used 12 of the 5 tokens of this day; the quota resets at 00:00 UTC, in (\d+ h )?\d+ min\."
            )
            assert re.fullmatch(figures, refused["message"]), refused["message"]


def test_a_prompt_that_waited_too_long_says_how_long_it_might(bounded: Site, paused: None) -> None:
    [ada] = people(bounded)
    rows(bounded, "UPDATE generation_queue SET max_wait_seconds = 1")
    try:
        with ada.socket() as socket:
            end = socket.end(socket.prompt("a b")["job"])
    finally:
        rows(bounded, "UPDATE generation_queue SET max_wait_seconds = NULL")
    assert end["type"] == "expired"
    assert end["message"] == "Its turn did not come within 1 s, the longest that a prompt may wait."
