"""`manage.py benchmark` itself, on a model without weights: its options, its table, its files, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from generation.benchmark import recommendation
from tests.environment import ROOT
from tests.site import Lines, clean_environment

SMALL = ("--sequences", "1,3", "--new-tokens", "4", "--rounds", "2", "--prompt-tokens", "5,9")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, settings: Any) -> Path:
    settings.GENERATION_MODELS = "mock=mock:?rate=200 narrow=mock:?slots=2&context=60 slow=mock:?rate=4"
    settings.GENERATION_BENCHMARK_FILE = tmp_path / "var" / "benchmark.json"
    path: Path = settings.GENERATION_BENCHMARK_FILE
    return path


def told(*arguments: str) -> str:
    out = StringIO()
    call_command("benchmark", *arguments, stdout=out)
    return out.getvalue()


# Ctrl-C counts even where whoever runs the tests has it ignored, as shells do for what they start with `&`.
RUN = (
    "import runpy, signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "runpy.run_path('manage.py', run_name='__main__')"
)


def command(folder: Path, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "benchmark", *arguments],
        cwd=ROOT,
        env=clean_environment(CHATSITE_VAR=str(folder), **environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_it_measures_at_each_number_of_sequences(kept: Path) -> None:
    text = told(*SMALL)
    assert "prompts of 5, 9 tokens, 4 new ones, medians of 2 rounds" in text
    rows = text.partition("sequences")[2].splitlines()
    assert rows[0].split() == ["1", "3"]
    one, three = map(float, rows[2].removeprefix("  tokenline").split())
    assert one < three  # a mock's sequences don't slow each other
    assert text.count("█") > 20
    found = recommendation.load(kept)
    assert found is not None and found.concurrency == 3
    assert "recommended: --concurrency 3;" in text and str(kept) in text


def test_it_writes_every_figure_as_json(tmp_path: Path) -> None:
    told(*SMALL, "--json", str(tmp_path / "figures.json"))
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["complete"] is True
    assert (found["model"], found["source"], found["recommended"]) == ("mock", "mock:?rate=200", 3)
    assert (found["prompt_tokens"], found["new_tokens"]) == ([5, 9], 4)
    assert found["machine"]["cores"] >= 1
    assert set(found["contestants"]) == {"tokenline"}
    cells = found["contestants"]["tokenline"]
    assert set(cells) == {"1", "3"}
    for cell in cells.values():
        assert cell.pop("rounds") == 2
        assert set(cell) == {
            "tokens_per_second",
            "first_token_seconds",
            "gap_p50_seconds",
            "gap_p99_seconds",
            "full_gap_p99_seconds",
        }
        assert all(value > 0 for value in cell.values())
    assert found["ratios"] == {} and found["scenes"] == []


def test_it_keeps_nothing_where_it_is_told_so(kept: Path) -> None:
    told(*SMALL, "--no-save")
    assert not kept.exists()


def test_it_recommends_one_where_a_reader_waits_all_the_same() -> None:
    assert "recommended: --concurrency 1, although" in told(*SMALL, "--model", "slow", "--rounds", "1", "--no-save")


def test_it_measures_no_more_at_a_time_than_a_model_has_slots() -> None:
    text = told("--model", "narrow", "--new-tokens", "2", "--rounds", "1", "--no-save")
    assert text.partition("sequences")[2].splitlines()[0].split() == ["1", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "other"), "no model 'other'; GENERATION_MODELS has mock, narrow, slow"),
        (("--sequences", "1,many"), "'many' is no whole number"),
        (("--sequences", "0"), "0 is less than 1"),
        (("--sequences", ""), "'' is no whole number"),
        (("--sequences", "1,3", "--model", "narrow"), "3 is more than the 2 slots of model narrow"),
        (("--new-tokens", "1"), "1 is less than 2"),
        (("--new-tokens", "8.5"), "'8.5' is no whole number"),
        (("--prompt-tokens", "5,-1"), "-1 is less than 1"),
        (("--rounds", "0"), "0 is less than 1"),
        (("--peers", "manager"), "model mock is a mock"),
        (("--json", "/nowhere/figures.json"), "there is no folder /nowhere"),
        (("--model", "narrow", "--new-tokens", "30"), "prompts of 55 and replies of 30 tokens don't fit into a"),
        (("--scenes",), "a mock computes nothing"),
    ],
)
def test_it_refuses_what_makes_no_sense(arguments: tuple[str, ...], message: str, kept: Path) -> None:
    with pytest.raises(CommandError) as refused:
        told(*arguments)
    assert message in str(refused.value)
    assert not kept.exists()


@pytest.mark.parametrize(("peers", "message"), [("other", "no 'other'; there are manager"), ("threads,", "no ''")])
def test_it_refuses_peers_that_it_does_not_know(settings: Any, peers: str, message: str) -> None:
    settings.GENERATION_MODELS = "small=/nowhere/small"
    with pytest.raises(CommandError, match=message):
        told("--peers", peers)


def test_it_says_why_a_model_cannot_be_loaded(settings: Any) -> None:
    settings.GENERATION_MODELS = "small=/nowhere/small"
    with pytest.raises(CommandError, match="small: .*there is no folder /nowhere/small"):
        told("--peers", "none")


def test_it_needs_no_secret_database_or_redis(tmp_path: Path) -> None:
    process = command(
        tmp_path / "var", *SMALL, GENERATION_MODELS="mock=mock:?rate=200", REDIS_URL="redis://127.0.0.1:1/0"
    )
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["benchmark.json"]


def test_ctrl_c_ends_it_with_what_was_measured(tmp_path: Path) -> None:
    """In the middle of a round of many."""
    process = command(
        tmp_path / "var",
        *("--sequences", "1,2", "--new-tokens", "20", "--rounds", "99", "--json", str(tmp_path / "figures.json")),
        GENERATION_MODELS="mock=mock:?rate=20",
    )
    lines = Lines(process)
    lines.wait_for("round 1 of 99, 2 at a time")
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    text = lines.wait_for_end()
    assert "not all was measured; so far:" in text
    assert "Interrupted." in text and "Traceback" not in text and "recommended" not in text
    found = json.loads((tmp_path / "figures.json").read_text())
    assert (found["complete"], found["recommended"]) == (False, None)
    assert found["contestants"]["tokenline"]["2"]["rounds"] >= 1
    assert not (tmp_path / "var" / "benchmark.json").exists()
