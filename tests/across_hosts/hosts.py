"""A network of hosts on this machine: namespaces joined by a bridge, each with an address, processes and a clock.

The thread that runs the tests is on the bridge too. Everything made here is removed at the end.
"""

import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Lines

_PROGRAMS = ("ip", "unshare", "setpriv", "gcc")
_NUMBERS = range(20, 250)
_CLONE_NEWNET = 0x40000000


def require() -> None:
    """Skip where such a network can't be made, and fail under CI=true."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    reason = f"missing: {', '.join(missing)}" if missing else ""
    if os.geteuid() != 0:
        reason = "network namespaces need root"
    elif not reason and _ip("link", "show", check=False).returncode != 0:
        reason = "this machine shows no network"
    if reason:
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def _ip(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


@dataclass(slots=True)
class Host:
    """`clock_seconds` is how far its clock is ahead. Its processes see no process of another host."""

    name: str
    address: str
    namespace: str
    link: str
    clock: Path
    clock_seconds: int = 0
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def inside(self) -> list[str]:
        """What stands before a command that is to use this host's network."""
        return ["ip", "netns", "exec", self.namespace]

    def start(self, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[str]":
        """Start a process; `stop` ends it."""
        process = subprocess.Popen(
            [*self._as_here(), *command],
            cwd=ROOT,
            env=environment | self._clock(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def lines(self, command: list[str], environment: dict[str, str]) -> Lines:
        return Lines(self.start(command, environment))

    def run(self, command: list[str], environment: dict[str, str]) -> str:
        done = subprocess.run(
            [*self._as_here(), *command],
            cwd=ROOT,
            env=environment | self._clock(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Meanwhile nothing reaches it and nothing comes from it."""
        _ip("link", "set", self.link, "down")
        try:
            yield
        finally:
            _ip("link", "set", self.link, "up")

    def stop(self) -> None:
        """End all its processes."""
        self.ask_to_stop()
        for process in reversed(self.started):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.started.clear()

    def ask_to_stop(self) -> None:
        for process in self.started:
            for pid in _children(process.pid):
                # `unshare` itself doesn't pass signals on; its child is the command.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def _as_here(self) -> list[str]:
        own = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return [*self.inside, *own, "sh", "-c", f'hostname {self.name} && exec "$@"', "sh"]

    def _clock(self) -> dict[str, str]:
        if not self.clock_seconds:
            return {}
        return {"LD_PRELOAD": str(self.clock), "CLOCK_SHIFT_SECONDS": str(self.clock_seconds)}


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextlib.contextmanager
def network(folder: Path, clocks: dict[str, int]) -> Iterator[dict[str, Host]]:
    """A host for each name, its clock ahead by so many seconds."""
    clock = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", clock, source], check=True)
    with _own_network(), contextlib.ExitStack() as removal:
        bridge, subnet = _bridge(removal)
        hosts = {
            name: _host(removal, name, clock, clock_seconds, bridge, f"{subnet}.{number}")
            for number, (name, clock_seconds) in enumerate(clocks.items(), start=1)
        }
        yield hosts


@contextlib.contextmanager
def _own_network() -> Iterator[None]:
    """Meanwhile this thread, and what it starts, has a network for itself.

    A browser that another test drives gives up its requests when it sees the machine's interfaces change.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace could be made")
        _ip("link", "set", "lo", "up")
        try:
            yield
        finally:
            libc.setns(home, _CLONE_NEWNET)
    finally:
        os.close(home)


def _bridge(removal: contextlib.ExitStack) -> tuple[str, str]:
    """A bridge with an address of ours, in a subnet that is free."""
    for number in random.sample(_NUMBERS, len(_NUMBERS)):
        bridge, subnet = f"hosts{number}", f"10.77.{number}"
        if f"{subnet}." in _ip("address", "show").stdout + _ip("route", "show").stdout:
            continue
        if _ip("link", "add", bridge, "type", "bridge", check=False).returncode == 0:
            removal.callback(_ip, "link", "delete", bridge, check=False)
            _ip("address", "add", f"{subnet}.254/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            return bridge, subnet
    raise AssertionError("no bridge could be made")


def _host(removal: contextlib.ExitStack, name: str, clock: Path, clock_seconds: int, bridge: str, address: str) -> Host:
    namespace, link = f"{bridge}-{name}", f"{bridge}{name}"[:15]
    host = Host(name, address, namespace, link, clock, clock_seconds)
    _ip("netns", "add", namespace)
    removal.callback(_ip, "netns", "delete", namespace, check=False)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    removal.callback(_ip, "link", "delete", link, check=False)
    removal.callback(host.stop)
    _ip("link", "set", link, "master", bridge, "up")
    for device in ("lo", "eth0"):
        _ip("-netns", namespace, "link", "set", device, "up")
    _ip("-netns", namespace, "address", "add", f"{address}/24", "dev", "eth0")
    return host
