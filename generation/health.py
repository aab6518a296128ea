"""The health pages: is this process alive, can the site answer prompts, and how loaded is it.

They judge by what workers wrote into their rows and never ask a worker. Reasons are short texts for
operators; they hold no password.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import redis
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from generation import availability, conf, overview
from generation.delivery.stream import redis_id
from generation.models import Worker

_migrated = False
"""Set once nothing is left to migrate: a running process can't fall behind its own code."""


@require_safe
@never_cache
def live(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"live": True})


@require_safe
@never_cache
def ready(request: HttpRequest) -> HttpResponse:
    reasons = list(_reasons())
    if not reasons:
        return JsonResponse({"ready": True, "reasons": []})
    usable = all(reason.leaves_usable for reason in reasons)
    texts = [reason.text for reason in reasons]
    return JsonResponse({"ready": False, "usable": usable, "reasons": texts}, status=503)


@require_safe
@never_cache
def load(request: HttpRequest) -> HttpResponse:
    try:
        live_workers = list(overview.live_workers())
        queues = overview.queue_loads(live_workers)
    except (DatabaseError, InterfaceError):
        return JsonResponse({"error": "the database can't be reached"}, status=503)
    return JsonResponse(
        {
            "queues": {
                queue.name: {
                    "running": queue.running,
                    "waiting": queue.waiting,
                    "max_running": queue.max_running,
                    "max_waiting": queue.max_waiting,
                    "paused": queue.paused,
                }
                for queue in queues
            },
            "workers": {
                str(worker.id): {
                    "queue": worker.queue,
                    "slots": worker.slots,
                    "busy": worker.busy,
                    "draining": worker.draining,
                    "models": {model["name"]: model["state"] for model in worker.models},
                }
                for worker in live_workers
            },
        }
    )


@dataclass(frozen=True, slots=True)
class Reason:
    """`leaves_usable`: prompts to another model are answered nevertheless."""

    text: str
    leaves_usable: bool = False


def _reasons() -> Iterator[Reason]:
    """Why a prompt couldn't be answered now; nothing when it could."""
    own_redis: str | None = None
    try:
        with _impatient_client() as client:
            own_redis = redis_id(client)
    except (RedisError, OSError) as error:
        yield Reason(f"Redis can't be reached ({type(error).__name__})")
    try:
        missing = _unapplied_migrations()
        if missing:
            yield Reason(f"migrations are not applied: {', '.join(missing)}")
            return
        witnesses = availability.witnesses()
        waiting = availability.waiting()
    except (DatabaseError, InterfaceError) as error:
        yield Reason(f"the database can't be reached ({type(error).__name__})")
        return
    workers = [worker for worker in witnesses if worker.live]  # type: ignore[attr-defined]
    if own_redis:
        yield from _strangers(workers, own_redis)
    yield from _missing_models(workers, witnesses)
    yield from _waiting_in_vain(workers, waiting)


def _impatient_client() -> redis.Redis:
    """A client of its own: whoever asks for health wants the answer before his own patience ends."""
    return redis.Redis.from_url(
        conf.redis_url(), socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
    )


def _unapplied_migrations() -> list[str]:
    global _migrated
    if _migrated:
        return []
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    _migrated = not plan
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def _strangers(workers: list[Worker], own_redis: str) -> Iterator[Reason]:
    """A worker that shares the database but not the Redis would run jobs whose text nobody here ever sees."""
    for worker in workers:
        if worker.redis_id and worker.redis_id != own_redis:
            yield Reason(f"worker {availability.name(worker)} uses another Redis than this web process")


def _missing_models(workers: list[Worker], witnesses: list[Worker]) -> Iterator[Reason]:
    models_of_queue: dict[str, list[str]] = {}
    for spec in conf.models().values():
        models_of_queue.setdefault(spec.queue, []).append(spec.name)
    taking = {queue: _taking(workers, queue) for queue in models_of_queue}
    any_ready = any(
        model in worker.ready_models
        for queue, models in models_of_queue.items()
        for model in models
        for worker in taking[queue]
    )
    for queue, models in models_of_queue.items():
        failed = availability.failures(witnesses, queue)
        for model in models:
            if model in failed:
                yield Reason(f"model {model} failed to load {failed[model].details}", any_ready)
        if taking[queue]:
            for model in models:
                if model not in failed:
                    yield from _missing_model(model, queue, taking[queue])
        elif any(worker.queue == queue for worker in workers):
            yield Reason(f"every worker of queue {queue} is draining")
        else:
            yield Reason(f"no worker is running for queue {queue}", any_ready and failed.keys() >= set(models))


def _taking(workers: list[Worker], queue: str) -> list[Worker]:
    return [worker for worker in workers if worker.queue == queue and not worker.draining]


def _missing_model(model: str, queue: str, workers: list[Worker]) -> Iterator[Reason]:
    """Nothing if any worker has it ready; else what each worker that knows it says."""
    found = [(worker, entry) for worker in workers for entry in worker.models if entry["name"] == model]
    if any(entry["state"] == "ready" for _, entry in found):
        return
    if not found:
        yield Reason(f"no worker of queue {queue} has model {model}")
    for worker, entry in found:
        state = "failed to load" if entry["state"] == "failed" else f"is {entry['state']}"
        yield Reason(f"model {model} {state} on worker {availability.name(worker)}")


def _waiting_in_vain(workers: list[Worker], waiting: dict[tuple[str, str], int]) -> Iterator[Reason]:
    """Jobs of a model that was removed, or hasn't come yet; their web processes end them in time."""
    for (queue, model), number in sorted(waiting.items()):
        if not availability.is_configured(queue, model) and not availability.is_listed(workers, queue, model):
            jobs = "1 job waits" if number == 1 else f"{number:,} jobs wait"
            yield Reason(f"{jobs} for model {model} of queue {queue}, which nobody has", leaves_usable=True)
