"""The short forms of the chaos run; `python -m tests.chaos` is the long one."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.chaos import targets
from tests.chaos.run import chaos


@pytest.mark.parametrize(
    ("attacked", "seed"),
    [pytest.param(targets.one_worker, 1, id="sqlite"), pytest.param(targets.two_workers, 2, id="postgresql")],
)
def test_it_loses_nothing_while_everything_is_killed(attacked: targets.Attacked, seed: int, tmp_path: Path) -> None:
    """Workers, web process, Redis and database are killed, frozen, emptied; every reply is exact all the same.

    Each seed draws other faults first; CHAOS_SEED is taken instead.
    """
    seed = int(os.environ.get("CHAOS_SEED") or seed)
    with attacked(tmp_path, seed=seed, lease_seconds=3, rate=40, away_seconds=4) as target:
        report = asyncio.run(chaos(target, people=8, seconds=45, seed=seed, pause=(1, 3)))
    print(report.table())
    assert not report.complaints, f"seed {seed}:\n" + "\n".join(report.complaints[:20])
    assert report.handed_over and report.replies
