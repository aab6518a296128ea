"""The short form of the chaos run; `python -m tests.chaos` is the long one."""

import asyncio
import os
from pathlib import Path

from tests.chaos.run import chaos
from tests.chaos.targets import Attacked


def check(attacked: Attacked, seed: int, folder: Path) -> None:
    """Attack for half a minute; CHAOS_SEED is taken instead of the seed.

    There is time for some six faults: the seeds are such that workers, Redis, web and the database are among them.
    """
    seed = int(os.environ.get("CHAOS_SEED") or seed)
    with attacked(folder, seed=seed, lease_seconds=3, rate=40, away_seconds=4) as target:
        report = asyncio.run(chaos(target, people=8, seconds=30, seed=seed, pause=(1, 3), opening_tries=1))
    print(report.table())
    assert not report.complaints, f"seed {seed}:\n" + "\n".join(report.complaints[:20])
    assert report.handed_over and report.replies
