"""Processes that a killed `up` left behind, told from strangers by pid, start time and boot."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

from chatsite.local.folder import VarFolder
from generation import process_identity

RECORD = "processes.json"
GRACE_SECONDS = 15.0
POLL_SECONDS = 0.05


def record(folder: VarFolder, running: Iterable[tuple[str, int]]) -> None:
    """Note what runs now, in the order in which it has to be stopped."""
    boot_id, namespace = process_identity.here()
    folder.write_json(
        RECORD,
        [
            {
                "name": name,
                "pid": pid,
                "started": process_identity.start_time(pid),
                "boot_id": boot_id,
                "pid_namespace": namespace,
            }
            for name, pid in running
        ],
    )


def end(folder: VarFolder, tell: Callable[[str], None]) -> None:
    """Stop what the last record names and wait until it is gone, one after the other.

    An orphaned Redis and a new one would write the same append-only file.
    """
    known = folder.read_json(RECORD)
    for entry in known if isinstance(known, list) else []:
        name, pid, started = entry["name"], entry["pid"], entry["started"]
        # A start time of 0 means that this system doesn't tell: then a stranger could have the pid by now.
        if not started or (entry["boot_id"], entry["pid_namespace"]) != process_identity.here():
            continue
        if process_identity.start_time(pid) != started:
            continue
        tell(f"ending {name} (pid {pid}) of an earlier start")
        _end(pid, started)
    folder.remove(RECORD)


def _end(pid: int, started: int) -> None:
    for number, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if process_identity.start_time(pid) != started:
                return
            time.sleep(POLL_SECONDS)  # not a child of ours, so there is nothing to wait on
