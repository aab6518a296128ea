"""Let people talk while everything is killed: prints the seed, each fault as it happens, and a table.

The exit status is 1 if anything was wrong.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos import targets
from tests.chaos.run import chaos

TARGETS: dict[str, targets.Attacked] = {
    "sqlite": targets.one_worker,
    "postgresql": targets.two_workers,
    "model": targets.built_in_model,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--people", type=int, default=12)
    parser.add_argument("--target", choices=TARGETS, default="sqlite")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tokenline-chaos-"))
    attacked = TARGETS[options.target]
    with attacked(folder, seed=options.seed, lease_seconds=5, rate=30, away_seconds=30) as target:
        seconds = 60 * options.minutes
        report = asyncio.run(chaos(target, people=options.people, seconds=seconds, seed=options.seed, pause=(2, 12)))
    print(report.table())
    for complaint in report.complaints[:50]:
        print(f"! {complaint}")
    print(f"logs: {folder}")
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
