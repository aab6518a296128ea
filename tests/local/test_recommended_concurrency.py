"""A benchmark, then `manage.py up` in the same folder, as somebody would do it."""

from collections.abc import Callable
from pathlib import Path

from tests.site import Site


def test_up_starts_workers_with_what_the_benchmark_recommended(tmp_path: Path, start_site: Callable[..., Site]) -> None:
    models = {"GENERATION_MODELS": "mock=mock:?rate=100"}
    measured = Site(tmp_path).manage(
        *("benchmark", "--sequences", "1,3", "--new-tokens", "3", "--rounds", "1", "--prompt-tokens", "4"), **models
    )
    assert measured.returncode == 0, measured.stderr
    assert "recommended: --concurrency 3" in measured.stdout
    site = start_site(None, "--no-flower", **models)
    assert "answers 3 at a time, as the benchmark of " in site.lines.text
    command = Path(f"/proc/{site.up['pids']['worker']}/cmdline").read_text().split("\0")
    assert command[command.index("-c") + 1] == "3"
