"""Which models can't be had, why, and what people are told of it. It reads rows and settings and changes nothing.

A worker that could load none of its models ends, and its supervisor starts another after a pause. Its last words
count during that pause, else such a model would seem to be merely without a worker.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q
from django.db.models.functions import Now

from generation import conf, overview, told
from generation.models import Job, Worker

PAUSE_SECONDS = 120.0
"""Longer than any supervisor's pause before it starts a worker again."""

NO_MODEL_STATUS = 78
"""The exit status of a worker that could load none of its models: EX_CONFIG of sysexits.h."""

# What people are told: the worker's own text may name folders, hosts and accounts. The first that fits counts.
_KINDS = [
    (r"out ?of ?memory|MemoryError|can't allocate memory", told.NO_MEMORY),
    (r"PermissionError|GatedRepo|40[13] Client Error|Unauthorized|Forbidden", told.ACCESS_REFUSED),
    (
        r"ConnectionError|ConnectTimeout|ReadTimeout|LocalEntryNotFound|OfflineMode|Max retries|couldn't connect"
        r"|could not be fetched",
        told.NOT_FETCHED,
    ),
    (
        r"FileNotFound|NotADirectory|there is no (file|folder)|(Repository|Entry|Revision)NotFound|not a local folder"
        r"|does not appear to have a file|no file named",
        told.FILES_MISSING,
    ),
    (
        r"Safetensor|UnpicklingError|JSONDecodeError|UnicodeDecodeError|EOFError|magic|invalid header|header too"
        r"|corrupt|truncated|size mismatch",
        told.FILES_UNREADABLE,
    ),
    (r"ModelRefused|has slots=|does not recognize this architecture|not supported", told.NOT_RUNNABLE),
]
_UNKNOWN = told.ASK_OPERATOR


def reason(error: str) -> str:
    """The kind of a worker's loading error, in words that tell nothing of the machine."""
    return next((words for pattern, words in _KINDS if re.search(pattern, error, re.IGNORECASE)), _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Failure:
    """A model that no worker has, or is about to have, and that some could not load."""

    model: str
    on: tuple[tuple[Worker, str], ...]
    """Each worker that failed, and its error."""

    @property
    def details(self) -> str:
        """For operators."""
        return "; ".join(f"on worker {name(worker)}: {error or 'no reason given'}" for worker, error in self.on)

    def message_for(self, user: Any) -> str:
        """For people; staff see the worker's own words."""
        if getattr(user, "is_staff", False):
            return told.NOT_LOADED_FOR_STAFF % {"model": self.model, "details": self.details.rstrip(".")}
        return told.NOT_LOADED % {"model": self.model, "reason": reason(self.on[0][1])}


def name(worker: Worker) -> str:
    return f"{worker.hostname} on {worker.host}"


def witnesses() -> list[Worker]:
    """Live workers (`live`), and the latest of each name that ended lately because it could load nothing."""
    lately = Q(last_seen_at__gte=Now() - timedelta(seconds=PAUSE_SECONDS))
    rows = list(overview.workers().filter(Q(live=True) | lately).order_by("queue", "hostname", "started_at"))
    latest = {(worker.queue, worker.hostname): worker for worker in rows}
    return [
        worker
        for worker in rows
        if worker.live  # type: ignore[attr-defined]
        or (worker == latest[worker.queue, worker.hostname] and _has_nothing(worker))
    ]


def _has_nothing(worker: Worker) -> bool:
    return bool(worker.models) and all(entry["state"] == "failed" for entry in worker.models)


def failures(workers: Iterable[Worker], queue_name: str) -> dict[str, Failure]:
    """What every one of these workers of the queue that lists it failed to load, by the model's name."""
    failed: dict[str, list[tuple[Worker, str]]] = {}
    hopeful = set()
    for worker in workers:
        for entry in worker.models if worker.queue == queue_name else ():
            if entry["state"] == "failed":
                failed.setdefault(entry["name"], []).append((worker, entry.get("error") or ""))
            else:
                hopeful.add(entry["name"])
    return {model: Failure(model, tuple(on)) for model, on in failed.items() if model not in hopeful}


def is_configured(queue_name: str, model: str) -> bool:
    """Whether this process's settings have the model for that queue."""
    spec = conf.models().get(model)
    return spec is not None and spec.queue == queue_name


def is_listed(workers: Iterable[Worker], queue_name: str, model: str) -> bool:
    """Whether a live worker of the queue was started with it."""
    return any(
        entry["name"] == model
        for worker in workers
        if worker.queue == queue_name and worker.live  # type: ignore[attr-defined]
        for entry in worker.models
    )


def waiting() -> dict[tuple[str, str], int]:
    """How many jobs wait, by queue and model."""
    rows = Job.objects.filter(state=Job.State.QUEUED).order_by().values_list("queue_id", "model")
    return {(queue_name, model): number for queue_name, model, number in rows.annotate(number=Count("pk"))}
