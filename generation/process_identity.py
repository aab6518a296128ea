"""Which process a row means: pid, its start time, and the kernel boot and PID namespace they count in."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int


def start_time(pid: int) -> int | None:
    """The process's start in clock ticks since boot (field 22 of /proc/PID/stat); None if there is none.

    0 where the system has no /proc: then only the lease tells that a process is dead.
    """
    if not Path("/proc/self/stat").exists():
        return 0
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@cache
def here() -> tuple[str, str]:
    """(boot id, PID namespace) of this process; empty where the system doesn't tell."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""
    return boot_id, namespace


def current() -> ProcessIdentity:
    boot_id, namespace = here()
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), boot_id, namespace, pid, start_time(pid) or 0)


def is_dead(boot_id: str, pid_namespace: str, pid: int, pid_started: int) -> bool:
    """True only where this process can see that that one is gone."""
    if not boot_id or (boot_id, pid_namespace) != here():
        return False
    return start_time(pid) != pid_started
