"""The health pages: is this process alive, can the site answer prompts, and how loaded is it.

They judge by what workers wrote into their rows and never ask a worker. Reasons are short texts for
operators; they hold no password.
"""

from collections.abc import Iterator

import redis
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from generation import conf, overview
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
    return JsonResponse({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)


@require_safe
@never_cache
def load(request: HttpRequest) -> HttpResponse:
    try:
        live_workers = list(overview.live_workers())
        queues = overview.queue_loads(live_workers)
    except DatabaseError:
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


def _reasons() -> Iterator[str]:
    """Why a prompt couldn't be answered now; nothing when it could."""
    own_redis: str | None = None
    try:
        with _impatient_client() as client:
            own_redis = redis_id(client)
    except (RedisError, OSError) as error:
        yield f"Redis can't be reached ({type(error).__name__})"
    try:
        missing = _unapplied_migrations()
        if missing:
            yield f"migrations are not applied: {', '.join(missing)}"
            return
        workers = list(overview.live_workers())
    except DatabaseError as error:
        yield f"the database can't be reached ({type(error).__name__})"
        return
    if own_redis:
        yield from _strangers(workers, own_redis)
    yield from _missing_models(workers)


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


def _strangers(workers: list[Worker], own_redis: str) -> Iterator[str]:
    """A worker that shares the database but not the Redis would run jobs whose text nobody here ever sees."""
    for worker in workers:
        if worker.redis_id and worker.redis_id != own_redis:
            yield f"worker {_name(worker)} uses another Redis than this web process"


def _missing_models(workers: list[Worker]) -> Iterator[str]:
    models_of_queue: dict[str, list[str]] = {}
    for spec in conf.models().values():
        models_of_queue.setdefault(spec.queue, []).append(spec.name)
    for queue, models in models_of_queue.items():
        here = [worker for worker in workers if worker.queue == queue]
        taking = [worker for worker in here if not worker.draining]
        if not taking:
            yield (f"every worker of queue {queue} is draining" if here else f"no worker is running for queue {queue}")
            continue
        for model in models:
            yield from _missing_model(model, queue, taking)


def _missing_model(model: str, queue: str, workers: list[Worker]) -> Iterator[str]:
    """Nothing if any worker has it ready; else what each worker that knows it says."""
    found = [(worker, entry) for worker in workers for entry in worker.models if entry["name"] == model]
    if any(entry["state"] == "ready" for _, entry in found):
        return
    if not found:
        yield f"no worker of queue {queue} has model {model}"
    for worker, entry in found:
        if entry["state"] == "failed":
            why = entry.get("error") or "no reason given"
            yield f"model {model} failed to load on worker {_name(worker)}: {why}"
        else:
            yield f"model {model} is {entry['state']} on worker {_name(worker)}"


def _name(worker: Worker) -> str:
    return f"{worker.hostname} on {worker.host}"
