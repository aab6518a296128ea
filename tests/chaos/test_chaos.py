"""The short form of the chaos run; `python -m tests.chaos` is the long one."""

import asyncio
import os
import random
from collections.abc import Callable

from tests.chaos.faults import Target
from tests.chaos.run import chaos
from tests.site import Site

LEASE_SECONDS = 3


def test_it_loses_nothing_while_everything_is_killed(start_site: Callable[..., Site]) -> None:
    """Worker, web process and Redis are killed, frozen and emptied while eight people talk; every reply is exact."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    site = start_site(
        None,
        "--concurrency",
        "4",
        "--no-flower",
        GENERATION_MODELS="mock=mock:?rate=40",
        GENERATION_LEASE_SECONDS=str(LEASE_SECONDS),
        GENERATION_MESSAGES_PER_MINUTE="10000",
    )
    target = Target(site, LEASE_SECONDS)
    report = asyncio.run(chaos(target, people=8, seconds=60, seed=seed, pause=(2, 6)))
    print(report.table())
    assert not report.complaints, f"seed {seed}:\n" + "\n".join(report.complaints[:20])
    assert report.handed_over and report.replies
