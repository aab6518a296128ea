"""Whether a line is full is known exactly, and a long line isn't counted again for every prompt."""

import random

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from generation import line, queue
from generation.line_size import FRESH_SECONDS, LineSizes
from generation.models import Job
from tests.generation.asking import ask, claim
from tests.generation.rows import make_job, make_worker

LIMIT = 12


pytestmark = pytest.mark.usefixtures("no_limits")


def size_if_full(sizes: LineSizes) -> int | None:
    with line.changing("gpu") as row:
        return sizes.size_if_full(row, LIMIT)


def num_waiting() -> int:
    return line.waiting("gpu").count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_exact_whatever_joins_starts_comes_back_and_leaves(seed: int) -> None:
    """The clock stands still, so that every count stays in use for as long as it proves anything."""
    chance, sizes, worker = random.Random(seed), LineSizes(clock=lambda: 0.0, long=0), make_worker()
    running: list[Job] = []
    for _ in range(120):
        act = chance.choice(["ask", "ask", "ask", "claim", "put back", "cancel", "fail", "requeue"])
        failed = Job.objects.filter(state=Job.State.FAILED).first()
        if act == "ask" and num_waiting() < LIMIT + 3:
            ask(f"person{chance.randrange(5)}")
        elif act == "claim" and (job := claim(worker)):
            running.append(job)
        elif act == "put back" and running:
            # Many at once, as when a worker dies.
            for job in running:
                queue.put_back(job.pk, job.epoch, drained=True)
            running.clear()
        elif act == "cancel" and (waiting := line.waiting("gpu").last()):
            queue.cancel(waiting)
        elif act == "fail" and running:
            job = running.pop()
            queue.end(job.pk, job.epoch, Job.State.FAILED)
        elif act == "requeue" and failed:
            queue.requeue(failed)
        exact = num_waiting()
        assert size_if_full(sizes) == (exact if exact >= LIMIT else None)


@pytest.mark.django_db(transaction=True)
def test_it_counts_a_long_line_once_for_many_prompts() -> None:
    sizes = LineSizes(clock=lambda: 0.0, long=0)
    with CaptureQueriesContext(connection) as captured:
        for _ in range(LIMIT - 1):
            assert size_if_full(sizes) is None
            ask()
    counts = [query for query in captured if "COUNT" in query["sql"] and "user_id" not in query["sql"]]
    # One for this line and one for what runs; the submits themselves count each time, their line being short.
    assert len(counts) == 2 + (LIMIT - 1)


@pytest.mark.django_db(transaction=True)
def test_it_notices_rows_written_by_hand_after_a_while() -> None:
    now = 0.0
    sizes = LineSizes(clock=lambda: now, long=0)
    assert size_if_full(sizes) is None
    for _ in range(LIMIT):
        make_job()
    now += 2 * FRESH_SECONDS
    assert size_if_full(sizes) == LIMIT


@pytest.mark.django_db(transaction=True)
def test_it_forgets_a_count_whose_transaction_was_rolled_back() -> None:
    sizes = LineSizes(clock=lambda: 0.0, long=0)
    jobs = [ask(f"person{number}") for number in range(LIMIT)]
    with transaction.atomic():
        for job in jobs:
            queue.cancel(job)
        assert size_if_full(sizes) is None
        transaction.set_rollback(True)
    assert size_if_full(sizes) == LIMIT


@pytest.mark.django_db(transaction=True)
def test_it_counts_a_short_line_each_time() -> None:
    sizes = LineSizes(clock=lambda: 0.0)
    assert size_if_full(sizes) is None
    for _ in range(LIMIT):
        make_job()
    assert size_if_full(sizes) == LIMIT
