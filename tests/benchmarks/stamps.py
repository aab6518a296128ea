"""The instant at which the engine handed over each token, by CLOCK_MONOTONIC, which all processes of a host share.

A worker that is told to keeps them in memory and writes them to `stamps` in its folder when it ends.
"""

import atexit
import time
from pathlib import Path
from typing import Any

from django.conf import settings

from generation import worker
from generation.engine import Engine, Event, EventType
from generation.engine.engine import OnEvents

NAME = "stamps"
_steps: list[tuple[int, list[Any]]] = []
_load_engine = worker.load_engine


def keep() -> None:
    worker.load_engine = _load_stamping_engine  # type: ignore[attr-defined]
    atexit.register(_write)


def read(folder: Path) -> dict[str, list[int]]:
    """Each job's instants in order."""
    instants: dict[str, list[int]] = {}
    for line in (folder / NAME).read_text().splitlines():
        job, instant = line.split()
        instants.setdefault(job, []).append(int(instant))
    return instants


def _load_stamping_engine(*arguments: Any, on_events: OnEvents, **options: Any) -> Engine:
    def note(events: list[Event]) -> None:
        _steps.append((time.monotonic_ns(), [event.identifier for event in events if event.type is EventType.TOKEN]))
        on_events(events)

    return _load_engine(*arguments, on_events=note, **options)


def _write() -> None:
    with (Path(settings.VAR) / NAME).open("w") as file:
        for instant, identifiers in _steps:
            file.writelines(f"{job_id} {instant}\n" for job_id, _ in identifiers)
