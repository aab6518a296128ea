"""One run: people talk, faults happen on a schedule drawn from a seed, then everything is counted."""

import asyncio
import http.cookiejar
import random
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field

from tests.chaos import checks
from tests.chaos.faults import Target, against
from tests.chaos.people import Person, Reply
from tests.site import Site

TRIES = 3
AS_BEFORE = 0.6
"""The share of the first throughput that counts as what it was, on a machine that does other things too."""

PATIENCE_SECONDS = 180.0
"""How long the last replies may take once nothing is attacked any more."""


@dataclass(slots=True)
class Report:
    seed: int
    seconds: float = 0.0
    replies: list[Reply] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    handed_over: int = 0
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    rates: tuple[float, float] = (0.0, 0.0)
    complaints: list[str] = field(default_factory=list)

    def table(self) -> str:
        ends = Counter(reply.end for reply in self.replies)
        codes = Counter(reply.code for reply in self.replies if reply.code)
        lines = [
            f"seed {self.seed}, {self.seconds:.0f} s",
            *(f"{name:<44}{count:>8}" for name, count in sorted(self.faults.items())),
            f"{'replies':<44}{len(self.replies):>8}",
            *(f"{'  ' + (end or 'without an end'):<44}{count:>8}" for end, count in sorted(ends.items())),
            f"{'  handed over to another claim':<44}{self.handed_over:>8}",
            *(f"{'  failed as ' + code:<44}{count:>8}" for code, count in sorted(codes.items())),
            f"{'tokens received':<44}{sum(reply.seq for reply in self.replies):>8}",
            f"{'longest pause within a reply, s':<44}{max((r.longest_gap for r in self.replies), default=0):>8.1f}",
            f"{'tokens/s before and after':<44}{self.rates[0]:>8.1f}{self.rates[1]:>8.1f}",
            *(f"{name:<44}{self.before[name]:>8}{self.after.get(name, 0):>8}" for name in self.before),
            f"{'faults found':<44}{len(self.complaints):>8}",
        ]
        return "\n".join(lines)


async def chaos(
    target: Target, *, people: int, seconds: float, seed: int, pause: tuple[float, float], opening_tries: int = TRIES
) -> Report:
    """Let `people` talk for `seconds` with a fault every `pause` seconds, every kind before one comes again.

    The throughput before is the best of `opening_tries`.
    """
    site, report = target.site, Report(seed)
    cookies = await asyncio.to_thread(_sign_in, site, people)
    crowd = [
        Person(number, site.url, cookie, seed, target.model, target.requests) for number, cookie in enumerate(cookies)
    ]
    before = await _rate(crowd, seed, tries=opening_tries)
    report.rates = (before, 0.0)
    report.before = await asyncio.to_thread(checks.measure, target)
    watch = checks.EpochWatch(site)
    began = time.monotonic()
    talks = [asyncio.create_task(person.talk()) for person in crowd]
    await _attack(target, report, random.Random(seed), began + seconds, pause)
    for person in crowd:
        person.stopping = True
    _, late = await asyncio.wait(talks, timeout=PATIENCE_SECONDS)
    for talk in late:
        talk.cancel()
    for talk in set(talks) - late:
        talk.result()
    watch.stop()
    report.seconds = time.monotonic() - began
    report.rates = (before, await _rate(crowd, seed, tries=TRIES, enough=AS_BEFORE * before))
    report.replies = [reply for person in crowd for reply in person.replies]
    stored = await asyncio.to_thread(checks.rows, site)
    report.handed_over = sum(row["epoch"] > 1 for row in stored.values())
    report.complaints = checks.complaints(report.replies, stored) + watch.complaints
    report.after = await asyncio.to_thread(checks.measure, target)
    report.complaints += _leaks(report, people)
    return report


async def _attack(
    target: Target, report: Report, chance: random.Random, until: float, pause: tuple[float, float]
) -> None:
    faults = against(target)
    order: list[str] = []
    while True:
        await asyncio.sleep(chance.uniform(*pause))
        if time.monotonic() >= until:
            return
        if not order:
            order = chance.sample(sorted(faults), len(faults))
        name = order.pop()
        print(f"{name}", flush=True)
        report.faults[name] += 1
        await faults[name](target)


async def _rate(crowd: list[Person], seed: int, *, tries: int, enough: float = float("inf")) -> float:
    """Tokens per second over one reply for everyone at once: the best of `tries`, until one is enough.

    What else the machine does at that moment must not decide.
    """
    rates = [0.0]
    while max(rates) < enough and len(rates) <= tries:
        chance = random.Random(seed)
        asks = [person.draw(chance) for person in crowd]
        began = time.monotonic()
        talks = (person.ask(ask) for person, ask in zip(crowd, asks, strict=True))
        replies = await asyncio.wait_for(asyncio.gather(*talks), PATIENCE_SECONDS)
        rates.append(sum(reply.seq for reply in replies) / (time.monotonic() - began))
    return max(rates)


def _leaks(report: Report, people: int) -> list[str]:
    found = []
    for name, before in report.before.items():
        after = report.after[name]
        # Pools keep some connections and threads once they were needed; what grows with the replies is a leak.
        allowed = 0 if name in checks.NEVER else before + 2 * people + 20
        if after > allowed:
            found.append(f"{name}: {before} before, {after} after")
    if report.rates[1] < AS_BEFORE * report.rates[0]:
        found.append(f"{report.rates[0]:.1f} tokens/s before, {report.rates[1]:.1f} after")
    return found


def _sign_in(site: Site, people: int) -> list[str]:
    """A session cookie for each person."""
    cookies = []
    for number in range(people):
        link = site.manage("link", "--user", f"chaos-{number}").stdout.split()[-1]
        jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
        opener.open(link).close()
        cookies.append("; ".join(f"{cookie.name}={cookie.value}" for cookie in jar))
    return cookies
