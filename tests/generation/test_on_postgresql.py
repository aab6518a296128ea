"""The line and its workers on PostgreSQL, where rows are locked and transactions run side by side."""

import subprocess
import sys
from pathlib import Path

from tests.environment import ROOT
from tests.site import clean_environment

THERE = Path(__file__).parent
ON_BOTH = [
    "test_line.py",
    "test_line_size.py",
    "test_plans.py",
    "test_admission.py",
    "test_queue.py",
    "test_quotas.py",
    "test_ledger.py",
    "test_notices.py",
    "test_reaper.py",
    "test_running.py",
    "test_steering_races.py",
]
REAL_WORKERS = "exactly_as_many or told_to_stop or was_killed or row_says"


def run_tests(database_url: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", *arguments],
        cwd=ROOT,
        env=clean_environment(TEST_DATABASE_URL=database_url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_it_keeps_the_line_on_postgresql(database_url: str) -> None:
    run_tests(database_url, *(str(THERE / name) for name in ON_BOTH))


def test_it_keeps_jobs_on_postgresql_when_workers_come_and_go(database_url: str) -> None:
    run_tests(database_url, str(THERE / "test_worker.py"), "-k", REAL_WORKERS)
