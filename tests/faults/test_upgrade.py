"""An upgrade while people talk: this version and the next one side by side, each going on with the other's replies."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from uuid import UUID

import pytest
import redis

from generation.delivery import stream
from tests.chat.sockets import Socket, people
from tests.faults.replies import check_stopped, check_whole, worker_of
from tests.faults.versions import Version, write_next_version
from tests.generation.workers import wait_until
from tests.site import Site

WORDS = 1900
TEXT = "one two three four five"


@pytest.fixture
def site(start_site: Callable[..., Site]) -> Site:
    return start_site(None, "--no-flower", "--concurrency", "3", GENERATION_MODELS="mock=mock:?rate=20")


@pytest.fixture
def next_version(site: Site, tmp_path: Path) -> Iterator[Version]:
    version = Version(write_next_version(tmp_path / "next"), site)
    yield version
    version.stop()
    print(version.text)


def until_it_goes_on(socket: Socket, job: str) -> None:
    """Read on to the tenth token of the next claim."""
    socket.until("started", job=job)
    for _ in range(10):
        socket.until("token", job=job)


def versions_in_stream(site: Site, job: str) -> list[bool]:
    """Of each entry, whether the next version wrote it."""
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        return [b"v" in fields for _, fields in client.xrange(stream.tokens_key(UUID(job)))]


def test_two_versions_side_by_side_lose_nothing(site: Site, next_version: Version) -> None:
    (person,) = people(site)
    params = {"max_new_tokens": WORDS}
    with ExitStack() as stack:
        here = [stack.enter_context(person.socket()) for _ in range(3)]
        asked = [socket.prompt(TEXT, params=params) for socket in here[:2]]
        for socket, queued in zip(here, asked, strict=False):
            socket.until("token", job=queued["job"])
        next_version.manage("migrate", "-v0")
        upgraded, web = next_version.start("next", 3)
        visitor = web.visit(person)
        there = []
        for queued in asked:
            socket = stack.enter_context(visitor.socket(queued["conversation"]))
            socket.send("follow", job=queued["job"])
            there.append(socket)
        there.append(stack.enter_context(visitor.socket()))
        asked.append(there[2].prompt(TEXT, params=params))
        jobs = [queued["job"] for queued in asked]
        here[2] = stack.enter_context(person.socket(asked[2]["conversation"]))
        here[2].send("follow", job=jobs[2])
        everywhere = [*zip(here, jobs, strict=True), *zip(there, jobs, strict=True)]

        printed = site.lines.count
        os.kill(site.up["pids"]["worker"], signal.SIGTERM)
        for socket, job in zip(here[:2], jobs, strict=False):
            until_it_goes_on(socket, job)
            assert worker_of(site, job).startswith("next")
        site.lines.wait_for(lambda line: line.startswith("worker") and " ready." in line, after=printed)
        os.kill(upgraded.pid, signal.SIGKILL)
        for job in jobs:
            wait_until(lambda job=job: not versions_in_stream(site, job)[-1])
            assert worker_of(site, job).startswith("gpu")
        for socket, job in zip(there, jobs, strict=True):
            socket.send("cancel", job=job)
        for socket, job in everywhere:
            words = check_stopped(site, socket, job, TEXT)
            turns = [version for version, _ in groupby(versions_in_stream(site, job)[:words])]
            assert turns[-2:] == [True, False], "by the next version, then by this one again"
        for socket in (here[0], there[0]):
            check_whole(site, socket, socket.prompt(TEXT, params={"max_new_tokens": 9})["job"], TEXT, 9)
    assert "Traceback" not in site.lines.text + next_version.text
    assert site.lines.text.count("'job.speed'") == 1, "what is unknown is said once"
