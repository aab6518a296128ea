"""What `manage.py up` does when something dies, and how it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Site, clean_environment, is_running, wait_until_gone


def test_it_starts_a_killed_worker_again(start_site: Callable[..., Site]) -> None:
    site = start_site(None, "--no-flower")
    old = site.up["pids"]
    os.kill(old["worker"], signal.SIGKILL)
    site.lines.wait_for("started again: worker")
    new = site.up["pids"]
    assert new["worker"] != old["worker"]
    assert is_running(new["worker"])
    assert {**new, "worker": 0} == {**old, "worker": 0}
    assert site.manage("chat", "again", "--max-new-tokens", "1").stdout == "again\n"


def test_it_keeps_what_was_said_when_redis_is_killed(start_site: Callable[..., Site]) -> None:
    site = start_site(None, "--no-flower")
    os.kill(site.up["pids"]["redis"], signal.SIGKILL)
    site.lines.wait_for("started again: redis")
    answer = site.manage("chat", "still here", "--max-new-tokens", "2")
    assert answer.stdout == "still here\n", answer.stderr


def test_it_ends_what_a_killed_start_left_behind(start_site: Callable[..., Site], tmp_path: Path) -> None:
    """An orphaned Redis and a new one would write the same append-only file."""
    first = start_site(tmp_path, "--no-flower")
    orphans = [pid for pid in first.up["pids"].values() if pid]
    first.signal(signal.SIGKILL)
    assert all(is_running(pid) for pid in orphans)
    second = start_site(tmp_path, "--no-flower")
    assert not any(is_running(pid) for pid in orphans)
    assert second.manage("chat", "hello", "--max-new-tokens", "1").stdout == "hello\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_everything_in_order(start_site: Callable[..., Site], number: int) -> None:
    site = start_site()
    pids = list(site.up["pids"].values())
    assert site.signal(number) == 0
    for pid in pids:
        wait_until_gone(pid)
    said = [line for line in site.lines.text.splitlines() if "stopping " in line and line.startswith("up")]
    assert [line.rpartition(" ")[2] for line in said] == ["web", "worker", "flower", "redis"]
    assert not (site.var / "up.json").exists()
    assert not (site.var / "processes.json").exists()


def test_it_goes_on_and_stops_in_order_when_its_terminal_is_gone(tmp_path: Path) -> None:
    """A closed terminal ended it in the middle of its own end, and left every process behind."""
    site = Site(tmp_path, "--no-flower")
    reading, writing = os.pipe()
    site.process = subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", "0", "--var", str(site.var), "--no-flower"],
        cwd=ROOT,
        env=clean_environment(GENERATION_MODELS="mock=mock:?rate=50"),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )
    os.close(writing)
    with open(reading, encoding="utf-8") as output:
        assert any("Ctrl-C stops everything" in line for line in output)
    try:
        pids = site.up["pids"]
        assert site.manage("chat", "still here", "--max-new-tokens", "2").stdout == "still here\n"
        site.process.terminate()
        assert site.process.wait(PATIENCE_SECONDS) == 0
        for pid in filter(None, pids.values()):
            wait_until_gone(pid)
    finally:
        site.process.kill()
        site.process.wait()


def test_it_keeps_people_passwords_and_ports_over_a_restart(start_site: Callable[..., Site], tmp_path: Path) -> None:
    first = start_site(tmp_path)
    before = first.up
    assert first.stop() == 0
    after = start_site(tmp_path).up
    for name in ("admin_password", "flower_url", "flower_password", "redis_url", "database_url"):
        assert after[name] == before[name], name


def test_it_runs_one_worker_for_each_queue(start_site: Callable[..., Site]) -> None:
    models = "fast=mock:?rate=200 slow=mock:?rate=200&queue=other"
    site = start_site(None, "--no-flower", GENERATION_MODELS=models)
    assert {"worker", "worker-other"} <= set(site.up["pids"])
    for model in ("fast", "slow"):
        assert site.manage("chat", "hi", "--model", model, "--max-new-tokens", "1").stdout == "hi\n"


def test_it_goes_on_and_says_why_when_no_model_can_be_loaded(tmp_path: Path) -> None:
    """It pauses longer and longer, and prints a traceback once, not at each start."""
    site = Site(tmp_path, "--no-flower", GENERATION_MODELS=f"broken={tmp_path / 'nothing-here'}").launch()
    try:
        site.lines.wait_for(lambda line: line.startswith("worker") and "there is no folder" in line)
        site.lines.wait_for(lambda line: line.startswith("up") and "model broken failed to load" in line)
        for seconds in (0.5, 1):
            site.lines.wait_for(
                f"worker can load no model of queue gpu; why stands above; starting it again in {seconds}"
            )
        assert site.lines.text.count("Traceback") == 1
        assert not (site.var / "up.json").exists()
    finally:
        assert site.stop() == 0
