"""The short forms of the chaos run; `python -m tests.chaos` is the long one."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.chaos import targets
from tests.chaos.run import chaos


@pytest.mark.slow
@pytest.mark.parametrize("attacked", [targets.one_worker, targets.two_workers], ids=["sqlite", "postgresql"])
def test_it_loses_nothing_while_everything_is_killed(attacked: targets.Attacked, tmp_path: Path) -> None:
    """Workers, web process, Redis and database are killed, frozen, emptied; every reply is exact all the same."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    with attacked(tmp_path, seed=seed, lease_seconds=3, rate=40, away_seconds=4) as target:
        report = asyncio.run(chaos(target, people=8, seconds=60, seed=seed, pause=(1, 3)))
    print(report.table())
    assert not report.complaints, f"seed {seed}:\n" + "\n".join(report.complaints[:20])
    assert report.handed_over and report.replies
