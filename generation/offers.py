"""The models that people choose from, each with its line as it stands: what `hello` and `models` say of them.

Each process looks once a second at most, however many sockets ask. It knows rows and settings, and no sockets.
"""

import time
from typing import Any

from generation import availability, conf, estimates, overview
from generation.engine.spec import ModelSpec
from generation.models import Worker

FRESH_SECONDS = 1.0

_known: tuple[float, tuple[str, ...], list[dict[str, Any]]] = (float("-inf"), (), [])


def offers() -> list[dict[str, Any]]:
    """Every configured model, as it was within the last second."""
    global _known
    read_at, names, found = _known
    configured = tuple(conf.models())
    if time.monotonic() - read_at > FRESH_SECONDS or names != configured:
        found = look()
        _known = (time.monotonic(), configured, found)
    return found


def look() -> list[dict[str, Any]]:
    """Every configured model as it is now, in the order of the setting."""
    specs = conf.models().values()
    witnesses = availability.witnesses()
    live = [worker for worker in witnesses if worker.live]  # type: ignore[attr-defined]
    loads = {load.name: load for load in overview.queue_loads(live)}
    failed = {name: availability.failures(witnesses, name) for name in loads}
    found = []
    for spec in specs:
        load = loads[spec.queue]
        is_free = not load.waiting and load.running < load.max_running
        found.append(
            {
                "name": spec.name,
                "default": spec.name == conf.default_model(),
                "queue": spec.queue,
                "state": "failed" if spec.name in failed[spec.queue] else _state(spec, live),
                "paused": load.paused,
                "waiting": load.waiting,
                # Of whoever comes next; none where nothing is known.
                "eta_seconds": 0 if is_free else estimates.wait_at(spec.queue, load.waiting + 1),
                "context": _context(spec, live),
                "default_new_tokens": min(spec.default_new_tokens, conf.max_new_tokens()),
            }
        )
    return found


def _state(spec: ModelSpec, live: list[Worker]) -> str:
    """`ready`, `loading`, or `no_worker`: none that takes work has it or is about to."""
    states = {
        entry["state"]
        for worker in live
        if worker.queue == spec.queue and not worker.draining
        for entry in worker.models
        if entry["name"] == spec.name
    }
    return next((state for state in ("ready", "loading") if state in states), "no_worker")


def _context(spec: ModelSpec, live: list[Worker]) -> int | None:
    """How many tokens it reads and writes at most, as its workers say, else its setting; None if nobody knows."""
    told = [
        entry["context"]
        for worker in live
        if worker.queue == spec.queue
        for entry in worker.models
        if entry["name"] == spec.name and entry.get("context")
    ]
    return min(told, default=spec.context)
