"""Across hosts nothing is lost: one is cut off in mid-reply, its jobs go on elsewhere, and it comes back."""

import asyncio
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest
import redis

from tests.across_hosts import hosts
from tests.across_hosts.site import LEASE_SECONDS, MAX_WAIT_SECONDS, SpreadSite, spread_site
from tests.chaos import checks, scripts
from tests.chaos.people import Person, Reply
from tests.site import PATIENCE_SECONDS, Lines

CLOCKS = {"hub": 0, "one": 7 * 60, "two": -4 * 60}
CUT_SECONDS = 30
NUM_WORDS = 400
FINAL = ("finished", "failed", "cancelled", "expired")

LOCK = """
import time
from generation import line
with line.changing("gpu"):
    print("locked", flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True, slots=True)
class Cut:
    """What happened to two replies on each worker while `one` was cut off; all ended before it was back."""

    on_one: list[Reply]
    on_two: list[Reply]
    moved_seconds: float
    """From the cut until both replies of `one` went on elsewhere."""
    watch: checks.EpochWatch

    @property
    def replies(self) -> list[Reply]:
        return self.on_one + self.on_two


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpreadSite]:
    hosts.require()
    folder = tmp_path_factory.mktemp("hosts")
    with hosts.network(folder, CLOCKS) as network:
        site = None
        try:
            with spread_site(network, folder) as site:
                yield site
        finally:
            for name, lines in site.logs.items() if site else ():
                (folder / f"{name}.log").write_text(lines.text)


@pytest.fixture(scope="module")
def people(site: SpreadSite) -> list[Person]:
    return [
        Person(number, site.url, cookie, 0, scripts.words, deque()) for number, cookie in enumerate(site.cookies(12))
    ]


@pytest.fixture(scope="module")
def cut(site: SpreadSite, people: list[Person]) -> Iterator[Cut]:
    watch = checks.EpochWatch(site)
    yield asyncio.run(_cut(site, people[:4], watch))
    watch.stop()


async def _cut(site: SpreadSite, people: list[Person], watch: checks.EpochWatch) -> Cut:
    asking: list[asyncio.Task[Reply]] = []
    # `one` takes two at once, so the next two can only run on the other, which has room for all four.
    for name, concurrency, some in (("one", 2, people[:2]), ("two", 4, people[2:])):
        await asyncio.to_thread(site.start_worker, name, concurrency)
        asking += [asyncio.create_task(person.ask(scripts.echoed(NUM_WORDS))) for person in some]
        await _until(lambda some=some: all(person.replies and person.replies[0].seq > 20 for person in some))
    replies = [person.replies[0] for person in people]
    lines = site.logs["one"]
    with site.hosts["one"].cut_off():
        began = time.monotonic()
        _say(f"one is cut off after {[reply.seq for reply in replies[:2]]} tokens of its replies")
        await _until(lambda: all(len(watch.num_epochs[reply.job]) > 1 for reply in replies[:2]))
        moved_seconds = time.monotonic() - began
        _say(f"its replies went on after {moved_seconds:.1f} s")
        await asyncio.wait_for(asyncio.gather(*asking), PATIENCE_SECONDS)
        _say(f"all replies ended after {time.monotonic() - began:.1f} s")
        # Long enough for connections to break, not only to stall.
        await asyncio.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - began)))
    began = time.monotonic()
    for reply in replies[:2]:
        await asyncio.to_thread(lines.wait_for, lambda line, job=reply.job: job in line and "were refused" in line)
    _say(f"its late writes were refused {time.monotonic() - began:.1f} s after the return")
    return Cut(replies[:2], replies[2:], moved_seconds, watch)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)


async def _ask(person: Person, num_words: int) -> Reply:
    return await asyncio.wait_for(person.ask(scripts.echoed(num_words)), PATIENCE_SECONDS)


async def _in_line(site: SpreadSite, people: list[Person]) -> list[Reply]:
    """Prompts that come in one after the other while the queue is paused, and then start together."""
    await asyncio.to_thread(site.manage, "queue", "pause", "gpu")
    asking = []
    for person in people:
        asking.append(asyncio.create_task(_ask(person, 60)))
        await _until(lambda person=person: bool(person.replies and person.replies[-1].job))
    await asyncio.to_thread(site.manage, "queue", "resume", "gpu")
    return await asyncio.gather(*asking)


def _answered_by_one(site: SpreadSite, person: Person) -> Reply:
    """A reply that only the host which was cut off can write."""
    with site.draining("two"):
        began = time.monotonic()
        reply = asyncio.run(_ask(person, 10))
        _say(f"one answered within {time.monotonic() - began:.1f} s")
    return reply


def _claimants(site: SpreadSite, reply: Reply) -> list[str | None]:
    """The node name of each worker that claimed the job."""
    return [host for job, state, _, host in site.changes() if job == reply.job and state == "running"]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def test_it_goes_on_elsewhere_while_a_host_is_cut_off(site: SpreadSite, cut: Cut) -> None:
    assert cut.moved_seconds < 4 * LEASE_SECONDS
    assert [_claimants(site, reply) for reply in cut.on_one] == [["gpu@one", "gpu@two"]] * 2
    assert [_claimants(site, reply) for reply in cut.on_two] == [["gpu@two"]] * 2


def test_it_delivers_and_stores_each_reply_exactly(site: SpreadSite, cut: Cut) -> None:
    rows = site.rows()
    assert checks.complaints(cut.replies, {reply.job: rows[reply.job] for reply in cut.replies}) == []
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        for reply in cut.replies:
            entries = client.xrange(f"generation:tokens:{reply.job}")
            assert [seq for seq, _ in entries] == [b"%d-0" % seq for seq in range(1, NUM_WORDS + 2)]
            assert b"".join(fields[b"t"] for _, fields in entries).decode() == reply.ask.expected


def test_it_refuses_what_the_host_writes_when_it_is_back(site: SpreadSite, cut: Cut) -> None:
    """A worker that came back from a broken network wrote into replies that others had taken over."""
    for reply in cut.on_one:
        found = re.search(
            rf"job {reply.job} goes on elsewhere: (\d+) entries of epoch 1 were refused", site.logs["one"].text
        )
        assert found
        _say(f"{found[1]} entries were refused")
        assert int(found[1]) > 0
        assert cut.watch.num_epochs[reply.job] == {1, 2}
    assert cut.watch.complaints == []
    ends = Counter(job for job, state, _, _ in site.changes() if state in FINAL)
    assert [ends[reply.job] for reply in cut.replies] == [1] * 4
    last_epochs = {job: epoch for job, state, epoch, _ in site.changes() if state in FINAL}
    assert [last_epochs[reply.job] for reply in cut.replies] == [2, 2, 1, 1]


def test_it_runs_jobs_on_the_host_again_without_a_restart(site: SpreadSite, people: list[Person], cut: Cut) -> None:
    """A worker that had lost Redis looked alive and took no task until it was restarted.

    celery/celery#8091
    """
    assert site.hosts["one"].started[0].poll() is None
    reply = _answered_by_one(site, people[4])
    assert reply.complaints() == []
    assert _claimants(site, reply) == ["gpu@one"]


def test_it_takes_prompts_though_a_host_was_cut_off_with_the_line_locked(
    site: SpreadSite, people: list[Person], cut: Cut
) -> None:
    """A lock that a host held when it was cut off stayed until TCP gave the host up, hours later."""
    one = site.hosts["one"]
    locking = one.start([sys.executable, "manage.py", "shell", "--no-imports", "-c", LOCK], site.environment)
    lines = Lines(locking)
    try:
        lines.wait_for("locked")
        with one.cut_off():
            began = time.monotonic()
            reply = asyncio.run(_ask(people[5], 10))
            _say(f"a prompt was answered {time.monotonic() - began:.1f} s after the line's holder was cut off")
        assert reply.complaints() == []
        assert _claimants(site, reply) == ["gpu@two"]
    finally:
        locking.kill()
        lines.wait_for_end()


def test_it_keeps_order_and_waiting_times_under_clocks_that_differ(
    site: SpreadSite, people: list[Person], cut: Cut
) -> None:
    for name in ("one", "two"):
        assert abs(site.clocks[name] - CLOCKS[name]) < 60, "the worker's clock isn't shifted"
    assert _claimants(site, _answered_by_one(site, people[4])) == ["gpu@one"]
    replies = asyncio.run(_in_line(site, people[6:]))
    assert [complaint for reply in replies for complaint in reply.complaints()] == []
    asked = [reply.job for reply in replies]
    claims = [(job, host) for job, state, _, host in site.changes() if state == "running" and job in asked]
    assert [job for job, _ in claims] == asked
    assert {host for _, host in claims} == {"gpu@one", "gpu@two"}
    for row in site.rows().values():
        waited = datetime.fromisoformat(row["started_at"]) - datetime.fromisoformat(row["created_at"])
        assert 0 <= waited.total_seconds() < MAX_WAIT_SECONDS
        assert 0 <= row["timings"]["queue"] < MAX_WAIT_SECONDS
