"""The statements of a claim as text, for PostgreSQL and SQLite.

A claim holds the line's lock from its first statement to its last; composing them anew each time takes longer than
running them. What may be claimed and what a state means is decided in `line.py` and `queue.py`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from django.db import connection, models

from generation.models import Job, Queue, Worker


def locked(queue_name: str) -> Queue | None:
    """The queue's row, locked until the transaction ends. SQLite holds its one write lock already."""
    lock = " FOR NO KEY UPDATE" if connection.features.has_select_for_no_key_update else ""
    rows = Queue.objects.raw(f"SELECT * FROM {_table(Queue)} WHERE name = %s{lock}", [queue_name])
    return next(iter(rows), None)


def move_clock(queue: Queue) -> None:
    _run(f"UPDATE {_table(Queue)} SET virtual_time = %s WHERE name = %s", [queue.virtual_time, queue.name])


def head(queue_name: str, model_names: list[str]) -> Job | None:
    """The first waiting job for one of these models.

    One look-up per model, one entry read each: `model IN (...)` would read and sort all that wait for them.
    """
    table = _table(Job)
    first = (
        f"(SELECT id FROM {table} WHERE queue_id = %s AND state = 'queued' AND model = %s "
        "ORDER BY order_key, arrival LIMIT 1)"
    )
    firsts = ", ".join([first] * len(model_names)) or "NULL"
    values = [value for model in model_names for value in (queue_name, model)]
    heads = Job.objects.raw(f"SELECT * FROM {table} WHERE id IN ({firsts})", values)
    return min(heads, key=lambda job: (job.order_key, job.arrival), default=None)


def take(job: Job, worker: Worker, changes: Mapping[str, Any]) -> bool:
    """Write these fields of a job that still waits, for a worker that still takes work; False if either doesn't."""
    names = tuple(changes)
    values = [_stored(Job, name, value) for name, value in changes.items()]
    mine = [_stored(Job, "id", job.pk), job.epoch, _stored(Worker, "id", worker.pk)]
    return _run(_take(connection.vendor, names), values + mine) == 1


@cache
def _take(vendor: str, names: tuple[str, ...]) -> str:
    columns = [connection.ops.quote_name(str(_field(Job, name).column)) for name in names]
    return (
        f"UPDATE {_table(Job)} SET {', '.join(f'{column} = %s' for column in columns)} "
        "WHERE id = %s AND state = 'queued' AND epoch = %s AND EXISTS "
        f"(SELECT 1 FROM {_table(Worker)} WHERE id = %s AND NOT draining AND stopped_at IS NULL)"
    )


def _table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def _stored(model: type[models.Model], name: str, value: Any) -> Any:
    return _field(model, name).get_db_prep_save(value, connection)


def _field(model: type[models.Model], name: str) -> "models.Field[Any, Any]":
    return cast("models.Field[Any, Any]", model._meta.get_field(name))


def _run(statement: str, values: list[Any]) -> int:
    """How many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        changed: int = cursor.rowcount
    return changed
