"""Prompts put in line and taken out of it the way the site and a worker do, for tests of the line."""

import threading
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.db import connections

from generation import queue
from generation.models import Job, Worker

T = TypeVar("T")


def person(name: str) -> Any:
    return get_user_model().objects.get_or_create(username=name)[0]


def operator() -> Any:
    """Somebody of the staff."""
    return get_user_model().objects.get_or_create(username="operator", defaults={"is_staff": True})[0]


def ask(name: str = "ada", text: str = "one two three", **options: Any) -> Job:
    return queue.submit(person(name), [{"role": "user", "content": text}], **options)


def claim(worker: Worker, *, models: Iterable[str] = ("mock",)) -> Job | None:
    return queue.claim("gpu", list(models), worker, str(uuid.uuid4()))


def claim_all(worker: Worker) -> list[Job]:
    """Every waiting job in the order of the claims."""
    return list(iter(partial(claim, worker), None))


def in_threads(number: int, act: Callable[[int], T]) -> list[T | Exception]:
    """`act(0)` to `act(number - 1)`, all let go at one moment, each with its own database connection."""
    barrier = threading.Barrier(number)
    results: list[T | Exception] = [RuntimeError("the thread did not end")] * number

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = act(index)
        except Exception as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
