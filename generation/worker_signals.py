"""This process's worker, built, started, drained and closed by Celery's signals.

A Celery worker that consumes a queue of `GENERATION_MODELS` loads that queue's models at start; any other one of a
host site is left alone.
"""

import os
import sys
import threading
import traceback
from typing import Any, NoReturn

from celery.signals import worker_init, worker_ready, worker_shutdown, worker_shutting_down

from generation import conf
from generation.availability import NO_MODEL_STATUS
from generation.worker import NoModelLoaded, WorkerProcess

_process: WorkerProcess | None = None


def current() -> WorkerProcess:
    """This process's worker. Raises RuntimeError in a process that loaded no models."""
    if _process is None:
        raise RuntimeError("this Celery worker consumes no queue of GENERATION_MODELS and has no engine")
    return _process


def _refuse(message: str, status: int = 1) -> NoReturn:
    # Celery swallows exceptions in this signal and would say "ready"; its own exit would wait for a pool.
    print(f"\n{message}\n", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(status)


@worker_init.connect  # type: ignore[untyped-decorator]
def _build(sender: Any, **_: Any) -> None:
    global _process
    try:
        consumed = set(sender.app.amqp.queues.consume_from)
        specs = [spec for spec in conf.models().values() if spec.queue in consumed]
        if not specs:
            return
        _check_pool(sender)
        queues = {spec.queue for spec in specs}
        if len(queues) > 1:
            _refuse(f"one worker consumes one GPU queue, not {', '.join(sorted(queues))}; start one for each (-Q NAME)")
        _process = WorkerProcess(sender.hostname, queues.pop(), sender.concurrency)
        _process.load(specs)
    except NoModelLoaded as error:
        _refuse(f"the worker ends: {error}", NO_MODEL_STATUS)
    except Exception as error:
        traceback.print_exc()
        _refuse(f"the worker ends: {error}")


def _check_pool(sender: Any) -> None:
    pool = sender.pool_cls if isinstance(sender.pool_cls, str) else sender.pool_cls.__module__
    if pool.rpartition(".")[2] not in ("threads", "thread"):
        _refuse(
            f"a GPU worker needs threads that share its models, not the {pool} pool: start it with -P threads "
            "(celery -A chatsite worker -Q gpu -P threads -c 4)"
        )


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start(**_: Any) -> None:
    if _process is not None:
        _process.start()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _drain(**_: Any) -> None:
    # A signal handler runs between two instructions of the main thread: it must not take a lock that one may hold.
    if _process is not None:
        threading.Thread(target=_process.drain, name="drain", daemon=True).start()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _close(**_: Any) -> None:
    if _process is not None:
        _process.close()
