"""Starts programs, restarts what dies, stops all in order. It knows nothing of what they do.

Everything is started from the main thread and in a session of its own, so that a terminal's Ctrl-C reaches
`up` alone, which then decides the order. All that happens arrives in one queue, which `run` reads.
"""

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType

from chatsite.local import orphans
from chatsite.local.folder import VarFolder
from chatsite.local.output import Output

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 60.0
MAX_DELAY_AFTER_A_SIGNAL_SECONDS = 10.0
"""What was killed from outside has most likely no fault of its own."""
STEADY_SECONDS = 30.0
"""A process that lived this long starts its delays anew."""
OUTPUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Program:
    """`environ` is added to this process's own. `grace_seconds`: from SIGTERM to SIGKILL.

    `meanings` says what an exit status tells. It is the program's own verdict, so that no run counts as a good one,
    however long it took.
    """

    name: str
    argv: tuple[str, ...]
    grace_seconds: float = 10.0
    environ: Mapping[str, str] = field(default_factory=dict)
    meanings: Mapping[int, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Running:
    program: Program
    process: subprocess.Popen[bytes]
    output: threading.Thread
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Exited:
    running: Running


@dataclass(frozen=True, slots=True)
class Told:
    """Something another thread found out; `run` hands `what` to its `on_told`."""

    what: object


class Stop:
    """Somebody wants the site to end."""


Happening = Exited | Told | Stop


class Supervisor:
    """All methods but `tell` belong to the main thread. `order` is how programs are stopped, by name."""

    def __init__(self, folder: VarFolder, output: Output, order: list[str]) -> None:
        self._folder = folder
        self._output = output
        self._order = order
        self._running: dict[str, Running] = {}
        self._due: dict[str, tuple[float, Program]] = {}
        self._failures: dict[str, int] = {}
        # SimpleQueue.put is reentrant: a signal handler may call it whatever the thread was doing.
        self._happenings: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        self.stopping = False

    @property
    def pids(self) -> dict[str, int]:
        return {name: running.process.pid for name, running in self._running.items()}

    def tell(self, what: object) -> None:
        """May be called by any thread."""
        self._happenings.put(Told(what))

    def listen_to_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        self._happenings.put(Stop())

    def start(self, program: Program) -> None:
        process = subprocess.Popen(
            program.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **program.environ},
            start_new_session=True,
        )
        assert process.stdout is not None
        running = Running(program, process, self._output.follow(program.name, process.stdout))
        self._running[program.name] = running
        self._record()
        threading.Thread(target=self._await_exit, args=(running,), name=f"wait for {program.name}", daemon=True).start()

    def _await_exit(self, running: Running) -> None:
        running.process.wait()
        self._happenings.put(Exited(running))

    def finish(self, program: Program) -> int | None:
        """Run a program to its end on our own terminal; its exit status, or None if we were told to stop."""
        process = subprocess.Popen(
            program.argv,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **program.environ},
            start_new_session=True,
        )
        while not self.stopping:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=0.2)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=program.grace_seconds)
        _kill_session(process.pid)
        process.wait()
        return None

    def run(self, on_restart: Callable[[list[str]], None], on_told: Callable[[object], None]) -> None:
        """Restart what dies until somebody wants the site to end."""
        while not self.stopping:
            self._restart_what_is_due(on_restart)
            try:
                happening = self._happenings.get(timeout=self._patience())
            except queue.Empty:
                continue
            if isinstance(happening, Exited):
                self._on_exit(happening.running)
            elif isinstance(happening, Told):
                on_told(happening.what)

    def _patience(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(due for due, _ in self._due.values()) - time.monotonic())

    def _on_exit(self, running: Running) -> None:
        program = running.program
        if self._running.get(program.name) is not running:
            return
        del self._running[program.name]
        _kill_session(running.process.pid)
        status = running.process.returncode
        if time.monotonic() - running.started > STEADY_SECONDS and status not in program.meanings:
            self._failures.pop(program.name, None)
        failures = self._failures[program.name] = self._failures.get(program.name, 0) + 1
        delay = delay_before_restart(failures, status)
        self._due[program.name] = (time.monotonic() + delay, program)
        how = program.meanings.get(status) or _how(status)
        self._output.tell(f"{program.name} {how}; starting it again in {delay:g} s")

    def _restart_what_is_due(self, on_restart: Callable[[list[str]], None]) -> None:
        now = time.monotonic()
        due = [program for instant, program in self._due.values() if instant <= now]
        for program in due:
            del self._due[program.name]
            self.start(program)
        if due:
            on_restart([program.name for program in due])

    def stop_all(self) -> None:
        """Stop all programs one after the other, each waited for. A second signal shortens every grace time."""
        self._due.clear()
        for name in sorted(self._running, key=self._rank):
            self._stop(self._running.pop(name))
            self._record()
        self._folder.remove(orphans.RECORD)

    def _stop(self, running: Running) -> None:
        self._output.tell(f"stopping {running.program.name}")
        with contextlib.suppress(ProcessLookupError):
            running.process.terminate()
        try:
            running.process.wait(timeout=running.program.grace_seconds)
        except subprocess.TimeoutExpired:
            self._output.tell(f"{running.program.name} didn't stop in {running.program.grace_seconds:g} s; killing it")
        _kill_session(running.process.pid)
        running.process.wait()
        running.output.join(OUTPUT_SECONDS)

    def _record(self) -> None:
        ordered = sorted(self._running, key=self._rank)
        orphans.record(self._folder, [(name, self._running[name].process.pid) for name in ordered])

    def _rank(self, name: str) -> int:
        return self._order.index(name)


def delay_before_restart(failures: int, status: int) -> float:
    """Seconds before the restart after so many failures in a row, the last with this status (negative: a signal)."""
    longest = MAX_DELAY_SECONDS if status >= 0 else MAX_DELAY_AFTER_A_SIGNAL_SECONDS
    return float(min(longest, FIRST_DELAY_SECONDS * 2 ** min(failures - 1, 10)))


def _kill_session(pid: int) -> None:
    """Whatever a program started itself goes with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
