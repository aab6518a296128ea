"""`manage.py chat`: one prompt through queue, worker and delivery."""

import signal
import subprocess
import sys
from collections.abc import Callable

from tests.environment import ROOT
from tests.site import Lines, Site


def test_it_prints_the_reply_and_nothing_else_on_standard_output(site: Site) -> None:
    answer = site.manage("chat", "one two three", "--max-new-tokens", "7")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "one two three one two three one\n"


def test_it_tells_the_place_in_line_and_the_counts_beside_the_reply(site: Site) -> None:
    answer = site.manage("chat", "one two three", "--max-new-tokens", "7")
    assert "1st in line" in answer.stderr
    assert "3 + 7 tokens" in answer.stderr
    assert "tokens/s (length)" in answer.stderr


def test_it_fails_with_the_code_of_a_refusal(site: Site) -> None:
    for arguments, code in (
        (["hello", "--model", "unknown"], "model_unavailable"),
        (["   "], "empty_prompt"),
        (["hello", "--temperature", "-1"], "bad_params"),
    ):
        answer = site.manage("chat", *arguments)
        assert answer.returncode != 0
        assert code in answer.stderr
        assert answer.stdout == ""


def test_it_cancels_the_job_on_ctrl_c(start_site: Callable[..., Site]) -> None:
    """A reply of more than a minute is stopped in its first words; then a short one runs in the only slot."""
    site = start_site(None, "--concurrency", "1", "--no-flower", GENERATION_MODELS="mock=mock:?rate=20")
    asking = subprocess.Popen(
        [sys.executable, "-u", "manage.py", "chat", "word", "--max-new-tokens", "1500"],
        cwd=ROOT,
        env=site.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    asking.stdout = asking.stderr
    lines = Lines(asking)
    lines.wait_for("started after")
    asking.send_signal(signal.SIGINT)
    assert asking.wait(30) == 130
    answer = site.manage("chat", "next", "--max-new-tokens", "2")
    assert answer.stdout == "next next\n"
