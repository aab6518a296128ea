"""The command line: prints the seed, each fault as it happens, and a table; its status is 1 if anything was wrong."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.faults import Target
from tests.chaos.run import chaos
from tests.site import Site

LEASE_SECONDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--people", type=int, default=12)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tokenline-chaos-") as folder:
        site = Site(
            Path(folder),
            "--concurrency",
            "6",
            "--no-flower",
            GENERATION_MODELS="mock=mock:?rate=30",
            GENERATION_LEASE_SECONDS=str(LEASE_SECONDS),
            GENERATION_MESSAGES_PER_MINUTE="10000",
        ).start()
        try:
            target = Target(site, LEASE_SECONDS)
            report = asyncio.run(
                chaos(target, people=options.people, seconds=60 * options.minutes, seed=options.seed, pause=(2, 12))
            )
        finally:
            site.stop()
            (Path(tempfile.gettempdir()) / "tokenline-chaos.log").write_text(site.lines.text)
    print(report.table())
    for complaint in report.complaints[:50]:
        print(f"! {complaint}")
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
