"""A real `manage.py up` in a folder of its own, for tests that need the whole site."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chatsite import environment
from generation import process_identity
from tests.environment import ROOT

PATIENCE_SECONDS = 120.0


def clean_environment(**given: str) -> dict[str, str]:
    """Ours without any of the site's own variables, and with the given ones."""
    ours = environment.names_read() | {"DJANGO_SETTINGS_MODULE"}
    return {name: value for name, value in os.environ.items() if name not in ours} | given


def wait_until_gone(pid: int, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for the end of a process that may not be our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], seconds)[0], f"process {pid} is still there after {seconds:g} s"
    finally:
        os.close(descriptor)


def is_running(pid: int) -> bool:
    return process_identity.start_time(pid) is not None


def resident_bytes(pid: int) -> int:
    """The memory that it has in use."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process does nothing meanwhile; it may have been killed before it goes on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Lines:
    """What a process prints, to be waited for."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._thread.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        with self._changed:
            return "\n".join(self._lines)

    def text_after(self, number: int) -> str:
        """What was printed from line number `number` on."""
        with self._changed:
            return "\n".join(self._lines[number:])

    def wait_for(
        self, accept: Callable[[str], bool] | str, *, after: int = 0, seconds: float = PATIENCE_SECONDS
    ) -> str:
        """The first line from number `after` on that is accepted, or that holds the given text."""
        accepts = (lambda line: accept in line) if isinstance(accept, str) else accept
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self._lines[after:]:
                    if accepts(line):
                        return line
                rest = deadline - time.monotonic()
                if self._ended or rest <= 0:
                    raise AssertionError(
                        f"{accept!r} was not printed; the last lines:\n" + "\n".join(self._lines[-60:])
                    )
                self._changed.wait(rest)

    def wait_for_end(self) -> str:
        self._thread.join(PATIENCE_SECONDS)
        return self.text

    @property
    def count(self) -> int:
        with self._changed:
            return len(self._lines)


class Site:
    """One run of `manage.py up`. `start` returns when it says that it is ready."""

    def __init__(self, folder: Path, *options: str, **environ: str) -> None:
        self.var = folder / "var"
        self._options = options
        self._environ = {"GENERATION_MODELS": "mock=mock:?rate=50"} | environ
        self.process: subprocess.Popen[str] | None = None

    @property
    def env(self) -> dict[str, str]:
        """For other commands in that folder: they learn the rest from its local.env."""
        return clean_environment(CHATSITE_VAR=str(self.var))

    @property
    def up(self) -> dict[str, Any]:
        """What up.json says now."""
        found: dict[str, Any] = json.loads((self.var / "up.json").read_text())
        return found

    @property
    def url(self) -> str:
        """The site's address without a path."""
        parts = urlsplit(self.up["admin_url"])
        return f"{parts.scheme}://{parts.netloc}"

    def launch(self) -> "Site":
        """Start without waiting."""
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", "0", "--var", str(self.var), *self._options],
            cwd=ROOT,
            env=clean_environment(**self._environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines = Lines(self.process)
        return self

    def start(self) -> "Site":
        self.launch()
        self.lines.wait_for("Ctrl-C stops everything")
        return self

    def manage(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def signal(self, number: int) -> int:
        """Send it to `up` and wait for its end; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_SECONDS)
        self.lines.wait_for_end() if number != signal.SIGKILL else None
        return status

    @contextmanager
    def unsupervised(self) -> Iterator[None]:
        """What dies meanwhile stays dead: `up` sees it afterwards."""
        assert self.process is not None
        with frozen(self.process.pid):
            yield

    def stop(self) -> int:
        """End it if it still runs."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            return self.signal(signal.SIGTERM)
        return self.process.returncode


@contextmanager
def running(site: Site) -> Iterator[Site]:
    """From its start to its end; then what it printed is printed, for a test that failed."""
    try:
        yield site.start()
    finally:
        site.stop()
        print(site.lines.text)
