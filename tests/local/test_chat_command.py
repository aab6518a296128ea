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


def test_it_tells_counts_and_speed_beside_the_reply(site: Site) -> None:
    answer = site.manage("chat", "one two three", "--max-new-tokens", "7")
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


def ask(site: Site, *arguments: str) -> tuple["subprocess.Popen[str]", Lines]:
    """Start `manage.py chat`; the lines are those beside the reply."""
    asking = subprocess.Popen(
        [sys.executable, "-u", "manage.py", "chat", *arguments],
        cwd=ROOT,
        env=site.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    asking.stdout = asking.stderr
    return asking, Lines(asking)


def test_it_cancels_the_job_on_ctrl_c_and_the_next_in_line_starts(start_site: Callable[..., Site]) -> None:
    """A reply of more than a minute is stopped in its first words; who waited for the only slot gets it."""
    site = start_site(None, "--concurrency", "1", "--no-flower", GENERATION_MODELS="mock=mock:?rate=20")
    first, first_lines = ask(site, "word", "--max-new-tokens", "1500")
    first_lines.wait_for("started after")
    second, second_lines = ask(site, "next", "--max-new-tokens", "2")
    second_lines.wait_for("next in line of 1")
    first.send_signal(signal.SIGINT)
    assert first.wait(30) == 130
    assert second.wait(30) == 0
    assert "1 + 2 tokens" in second_lines.wait_for_end()


def test_it_says_that_the_site_does_not_run(start_site: Callable[..., Site]) -> None:
    site = start_site(None, "--no-flower")
    site.stop()
    answer = site.manage("chat", "anybody there?")
    assert answer.returncode != 0
    assert "manage.py up" in answer.stderr
    assert "Traceback" not in answer.stderr
