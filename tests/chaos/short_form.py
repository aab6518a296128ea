"""The short form of the chaos run; `python -m tests.chaos` is the long one."""

import asyncio
import os
from pathlib import Path

from tests.chaos.run import chaos
from tests.chaos.targets import Attacked


def check(attacked: Attacked, seed: int, folder: Path) -> None:
    """Attack for less than a minute; CHAOS_SEED is taken instead of the seed."""
    seed = int(os.environ.get("CHAOS_SEED") or seed)
    with attacked(folder, seed=seed, lease_seconds=3, rate=40, away_seconds=4) as target:
        report = asyncio.run(chaos(target, people=8, seconds=45, seed=seed, pause=(1, 3)))
    print(report.table())
    assert not report.complaints, f"seed {seed}:\n" + "\n".join(report.complaints[:20])
    assert report.handed_over and report.replies
