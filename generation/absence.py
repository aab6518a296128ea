"""Ends the jobs that wait for a model which can't be had: removed from the settings, or failed to load everywhere.

Only web processes do it, every few ticks while anybody has a socket open. During an upgrade processes with different
settings run side by side, so a process that doesn't know a model is no proof: each one notes in Redis what it is
configured with, and a model counts as removed when nobody has noted it for a while. Whatever is found must hold for a
lease before a job ends.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from generation import availability, conf, instants, queue, told
from generation.delivery import stream

logger = logging.getLogger(__name__)

CONFIGURED = "generation:configured:{}:{}"
FORGOTTEN_LEASES = 6
"""A model is removed when no process has had it for so many leases, and jobs accepted since are proof of one."""

LONGEST_GAP_SECONDS = 5.0
CODE = "model_unavailable"


class AbsentModels:
    """What this process found missing, and since when. Belongs to one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}
        self._looked_at = float("-inf")

    def sweep(self) -> int:
        """Look once; how many jobs were ended. Raises what Redis and the database raise, and begins anew then."""
        since, self._since = self._since, {}
        now = self._clock()
        if now - self._looked_at > max(LONGEST_GAP_SECONDS, conf.lease_seconds() / 2):
            since = {}  # nobody looked in between
        note_configured()
        absent = _absent()
        self._since = {key: since.get(key, now) for key in absent}
        self._looked_at = now
        return sum(end() for key, end in absent.items() if now - self._since[key] >= conf.lease_seconds())


def forgotten_seconds() -> float:
    return FORGOTTEN_LEASES * conf.lease_seconds()


def note_configured() -> None:
    """Tell the other processes which models this one has in its settings."""
    with stream.sync_client().pipeline(transaction=False) as pipe:
        for spec in conf.models().values():
            pipe.set(CONFIGURED.format(spec.queue, spec.name), 1, px=round(forgotten_seconds() * 1000))
        pipe.execute()


def _absent() -> dict[tuple[str, str], Callable[[], int]]:
    """The missing models that jobs wait for, each with what ends those jobs."""
    waiting = availability.waiting()
    if not waiting:
        return {}
    workers = availability.witnesses()
    failures = {name: availability.failures(workers, name) for name in {name for name, _ in waiting}}
    absent = {}
    for queue_name, model in waiting:
        if failure := failures[queue_name].get(model):
            absent[queue_name, model] = _ending(queue_name, model, failure)
        elif (
            not availability.is_configured(queue_name, model)
            and not availability.is_listed(workers, queue_name, model)
            and not stream.sync_client().exists(CONFIGURED.format(queue_name, model))
        ):
            absent[queue_name, model] = _ending(queue_name, model, None)
    return absent


def _ending(queue_name: str, model: str, failure: availability.Failure | None) -> Callable[[], int]:
    def message_for(user: Any) -> str:
        return failure.message_for(user) if failure else told.NOT_OFFERED % {"model": model}

    def end() -> int:
        age = timedelta(seconds=0 if failure else forgotten_seconds())
        details = failure.details if failure else f"no process has model {model} of queue {queue_name} any more"
        number = queue.fail_waiting(queue_name, model, instants.now() - age, CODE, message_for, details)
        if number:
            logger.error("%d jobs of queue %s failed: model %s can't be had, %s", number, queue_name, model, details)
        return number

    return end
