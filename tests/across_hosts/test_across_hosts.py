"""Across hosts nothing is lost: one is cut off in mid-reply, its jobs go on elsewhere, and it comes back."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
import redis

from tests.across_hosts import hosts
from tests.across_hosts.site import MAX_WAIT_SECONDS, SpreadSite, spread_site
from tests.chaos import checks
from tests.chaos.people import Person, Reply
from tests.site import PATIENCE_SECONDS

CLOCKS = {"hub": 0, "one": 7 * 60, "two": -4 * 60}
CUT_SECONDS = 30
NUM_WORDS = 400
FINAL = ("finished", "failed", "cancelled", "expired")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpreadSite]:
    hosts.require()
    folder = tmp_path_factory.mktemp("hosts")
    with hosts.network(folder, CLOCKS) as network, spread_site(network, folder) as site:
        yield site
        for name, lines in site.logs.items():
            (folder / f"{name}.log").write_text(lines.text)


@pytest.fixture(scope="module")
def people(site: SpreadSite) -> list[Person]:
    return [Person(number, site.url, cookie, 0, stops=0) for number, cookie in enumerate(site.cookies(12))]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def cut_in_mid_reply(site: SpreadSite, people: list[Person], watch: checks.EpochWatch) -> dict[str, list[Reply]]:
    """Two replies on each worker; `one` is cut off while it writes them, and comes back when all have ended."""
    one = site.hosts["one"]
    asking: dict[str, list[asyncio.Task[Reply]]] = {}
    for name, some in {"one": people[:2], "two": people[2:4]}.items():
        # `one` takes two at once, so the next two can only run on the other, which has room for all four.
        await asyncio.to_thread(site.start_worker, name, {"one": 2, "two": 4}[name])
        asking[name] = [asyncio.create_task(person.ask("", NUM_WORDS)) for person in some]
        await until(lambda some=some: all(person.replies and person.replies[0].seq > 20 for person in some))
    replies = {
        name: [person.replies[0] for person in some] for name, some in {"one": people[:2], "two": people[2:4]}.items()
    }
    one.cut_off()
    cut_at = time.monotonic()
    received = [reply.seq for reply in replies["one"]]
    say(f"one is cut off; received of its replies: {received}")
    try:
        await until(lambda: all(len(watch.num_epochs[reply.job]) > 1 for reply in replies["one"]))
        say(f"its jobs went on {time.monotonic() - cut_at:.1f} s after the cut")
        await asyncio.wait_for(asyncio.gather(*asking["one"], *asking["two"]), PATIENCE_SECONDS)
        say(f"all replies ended {time.monotonic() - cut_at:.1f} s after the cut")
        # Long enough for connections to break, not only to stall.
        await asyncio.sleep(CUT_SECONDS - (time.monotonic() - cut_at))
    finally:
        one.reconnect()
    return replies


async def in_line(site: SpreadSite, people: list[Person]) -> list[Reply]:
    """Prompts that come in one after the other while the queue is paused, and then start together."""
    await asyncio.to_thread(site.manage, "queue", "pause", "gpu")
    asking = []
    for person in people:
        asking.append(asyncio.create_task(person.ask("", 60)))
        await until(lambda person=person: bool(person.replies and person.replies[-1].job))
    await asyncio.to_thread(site.manage, "queue", "resume", "gpu")
    return await asyncio.wait_for(asyncio.gather(*asking), PATIENCE_SECONDS)


def hosts_of(site: SpreadSite, reply: Reply) -> list[str | None]:
    """The node name of each worker that claimed the job."""
    return [host for job, state, _, host in site.changes() if job == reply.job and state == "running"]


def logged_clock(site: SpreadSite, name: str) -> float:
    """How far the clock by which a worker logs is ahead of ours, in seconds."""
    line = site.logs[name].wait_for("ready.", after=site.logs[name].count - 1)
    logged = datetime.fromisoformat(line.split(",")[0]).replace(tzinfo=UTC)
    return (logged - datetime.now(UTC)).total_seconds()


def test_it_goes_on_elsewhere_while_a_host_is_cut_off(site: SpreadSite, people: list[Person]) -> None:
    watch = checks.EpochWatch(site)
    moved = asyncio.run(cut_in_mid_reply(site, people, watch))
    for reply in moved["one"]:
        assert hosts_of(site, reply) == ["gpu@one", "gpu@two"]
    for reply in moved["two"]:
        assert hosts_of(site, reply) == ["gpu@two"]
