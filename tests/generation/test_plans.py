"""What the database does for submit, claim and positions in a long line: it reads an index, and little of it.

Each statement is explained at the moment it is executed, with its values bound as they are: SQLite uses a partial
index only where it can prove that it may.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from generation import line, line_size, queue
from generation.line_size import LineSizes
from generation.models import Job, Queue
from tests.benchmarks import rows
from tests.generation.rows import make_worker

NUM_ENDED, NUM_WAITING = 15_000, 5_000
MIDDLE = NUM_WAITING // 2
NUM_PEOPLE = 1_000
FEW = 100
MODELS = ["mock", "other"]
JOBS = "generation_job"

Step = tuple[str, float, str]
"""How a table or index is read, how many of its rows, and the statement."""


@pytest.fixture(scope="module")
def long_line(django_db_setup: None, django_db_blocker: Any) -> Iterator[list[Any]]:
    """Its people, each with several prompts in it and more that ended. Made once, and taken back afterwards."""
    with django_db_blocker.unblock(), transaction.atomic():
        made = rows.people(NUM_PEOPLE)
        ended = rows.jobs(made, NUM_ENDED, models=MODELS)
        Job.objects.filter(order_key__lte=ended[-1].order_key).update(state=Job.State.FINISHED)
        rows.jobs(made, NUM_WAITING, models=MODELS)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")  # its own maintenance does so after many new rows; nobody does on SQLite
        yield made
        transaction.set_rollback(True)


@pytest.fixture
def people(long_line: list[Any], db: None, settings: Any) -> list[Any]:
    settings.GENERATION_MODELS = "mock=mock: other=mock:"
    settings.GENERATION_MAX_QUEUE_SIZE = settings.GENERATION_MAX_JOBS_PER_USER = 2 * NUM_WAITING
    return long_line


@contextmanager
def explained() -> Iterator[list[Step]]:
    """Every step of every SELECT from jobs; on SQLite, which doesn't count them, without rows."""
    steps: list[Step] = []
    explain = _steps_of_postgresql if connection.vendor == "postgresql" else _steps_of_sqlite

    def look(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.startswith("SELECT") and f'"{JOBS}"' in sql:
            steps.extend((how, number, sql) for how, number in explain(sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        yield steps
    assert steps


def _steps_of_sqlite(sql: str, params: Any) -> Iterator[tuple[str, float]]:
    found = connection.connection.execute("EXPLAIN QUERY PLAN " + sql.replace("%s", "?"), params)
    for *_, how in found.fetchall():
        yield how, 0


def _steps_of_postgresql(sql: str, params: Any) -> Iterator[tuple[str, float]]:
    with connection.connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, params)
        answer = cursor.fetchone()[0]
    plans = [each["Plan"] for each in (json.loads(answer) if isinstance(answer, str) else answer)]
    while plans:
        plan = plans.pop()
        plans += plan.get("Plans", [])
        read = (
            plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        )
        how = f"{plan['Node Type']} {plan.get('Relation Name', '')} {plan.get('Index Name', '')}"
        yield how, read * plan["Actual Loops"]


def unindexed(steps: list[Step]) -> list[Step]:
    """Those that read the whole table of jobs, or on SQLite sort; PostgreSQL sorts where that costs less."""
    return [
        step
        for step in steps
        if step[0].startswith((f"SCAN {JOBS}", f"Seq Scan {JOBS}", "USE TEMP B-TREE")) and "INDEX" not in step[0]
    ]


def long(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step[1] > FEW]


def test_it_submits_to_a_long_line_without_reading_it(
    people: list[Any], django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a count once in a while, which the first prompt does here; the clock stands still for the second."""
    monkeypatch.setattr(line_size, "sizes", LineSizes(clock=lambda: 0.0))
    messages = [{"role": "user", "content": "one two three"}]
    with django_capture_on_commit_callbacks(execute=True):
        queue.submit(people[6], messages)
    with explained() as steps:
        queue.submit(people[7], messages)
    assert not unindexed(steps)
    assert not long(steps)


def test_it_claims_from_a_long_line_without_reading_it(people: list[Any]) -> None:
    worker = make_worker()
    with explained() as steps:
        assert queue.claim("gpu", MODELS, worker, "task") is not None
    assert not unindexed(steps)
    assert not long(steps)


def test_it_finds_a_place_in_the_middle_by_an_index(people: list[Any]) -> None:
    job = Job.objects.get(order_key=NUM_ENDED + MIDDLE)
    with explained() as steps:
        assert line.position_of(job) == MIDDLE
    assert not unindexed(steps)


def test_it_numbers_the_whole_line_by_an_index(people: list[Any]) -> None:
    with explained() as steps:
        assert len(line.positions(Queue.objects.get().name)) == NUM_WAITING
    assert not unindexed(steps)
