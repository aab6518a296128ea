"""Workers that are killed, told to stop, frozen or stuck in the middle of replies; prompts that kill their worker."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.chat.sockets import people
from tests.faults.replies import check_whole, failure, repeated
from tests.site import Site

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
