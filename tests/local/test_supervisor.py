"""When the supervisor starts a program again that ended."""

import io
import signal
import sys
from pathlib import Path

import pytest

from chatsite.local.folder import VarFolder
from chatsite.local.output import Output
from chatsite.local.supervisor import Program, Supervisor, delay_before_restart


def test_pauses_grow_to_a_minute() -> None:
    pauses = [delay_before_restart(failures, 1) for failures in range(1, 20)]
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
    assert delay_before_restart(10_000, 1) == 60


def test_what_was_killed_again_and_again_comes_back_within_seconds() -> None:
    assert delay_before_restart(1, -signal.SIGKILL) == 0.5
    assert delay_before_restart(10_000, -signal.SIGKILL) == 10


@pytest.mark.parametrize(("status", "words"), [(78, "finds nothing to do"), (3, "ended with exit status 3")])
def test_it_says_in_plain_words_what_an_exit_status_means(tmp_path: Path, status: int, words: str) -> None:
    printed = io.StringIO()
    supervisor = Supervisor(VarFolder(tmp_path), Output(printed), ["part"])
    program = Program(
        "part", (sys.executable, "-c", f"raise SystemExit({status})"), meanings={78: "finds nothing to do"}
    )
    starts = []

    def stop_after_two(names: list[str]) -> None:
        starts.extend(names)
        supervisor.stopping = len(starts) == 2

    supervisor.start(program)
    supervisor.run(stop_after_two, lambda _: None)
    supervisor.stop_all()
    said = [line.partition("│ ")[2] for line in printed.getvalue().splitlines()]
    assert said[:2] == [f"part {words}; starting it again in {seconds} s" for seconds in ("0.5", "1")]
