"""Wakes that reach a worker which can't use them: they go on to one that can, and not round in circles."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from generation import queue
from generation.models import Job, Worker
from tests.generation.asking import ask
from tests.generation.rows import make_worker
from tests.generation.workers import CeleryWorker, celery_workers, has_ended, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_limits", "no_wakes")]

Start = Callable[..., CeleryWorker]
NUM_JOBS = 12
LEASE = "60"
"""Seconds: a tick is then every 12 s, much rarer than the jobs of these tests."""


@pytest.fixture(autouse=True)
def two_models(settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: other=mock:"


@pytest.fixture
def start(transactional_db: None) -> Iterator[Start]:
    """Start a ready worker with one slot: `start(name, models)`."""
    with celery_workers() as start_one:
        yield lambda name, models: start_one(name, "-c", "1", GENERATION_MODELS=models, GENERATION_LEASE_SECONDS=LEASE)


def row_of(name: str) -> Worker:
    return Worker.objects.get(hostname=f"{name}@test")


def num_ticks_while_running(name: str, **options: Any) -> int:
    """Ask one prompt after the other; how many ticks of that worker went by meanwhile."""
    ticks = {row_of(name).last_seen_at}
    for number in range(NUM_JOBS):
        job = ask(f"person{number}", params={"max_new_tokens": 1}, **options)

        def ended(job: Job = job) -> bool:
            ticks.add(row_of(name).last_seen_at)
            return has_ended(job)

        wait_until(ended, 60)
        assert job.worker == row_of(name)
    return len(ticks) - 1


def test_a_drained_worker_passes_wakes_on_to_another(start: Start) -> None:
    start("drained", "mock=mock:?rate=200")
    queue.drain(row_of("drained"))
    start("other", "mock=mock:?rate=200")
    assert num_ticks_while_running("other") < NUM_JOBS / 3


def test_a_worker_without_the_model_passes_wakes_on_to_another(start: Start) -> None:
    start("without", "mock=mock:?rate=200")
    start("with", "other=mock:?rate=200")
    assert num_ticks_while_running("with", model="other") < NUM_JOBS / 3


def test_a_resumed_queue_fills_every_free_slot_without_a_tick(transactional_db: None) -> None:
    with celery_workers() as start_one:
        start_one("one", "-c", "4", GENERATION_MODELS="mock=mock:", GENERATION_LEASE_SECONDS="1000")
        queue.pause("gpu")
        jobs = [ask(f"person{number}", params={"max_new_tokens": 2_000}) for number in range(4)]
        before = row_of("one").last_seen_at
        queue.resume("gpu")
        running = Job.objects.filter(pk__in=[job.pk for job in jobs], state=Job.State.RUNNING)
        wait_until(lambda: running.count() == len(jobs))
        assert row_of("one").last_seen_at == before


def test_a_wake_that_nobody_can_use_ends(start: Start) -> None:
    """Two workers that can't use it would pass it to each other for ever."""
    workers = [start("one", "mock=mock:?rate=200"), start("two", "mock=mock:?rate=200")]
    # It can, by its row, and never takes anything.
    make_worker(hostname="busy@test", models=[{"name": "other", "state": "ready", "error": ""}])
    waiting = ask(model="other")
    num_workers, num_jobs = 3, 4
    for number in range(num_jobs):
        behind = ask(f"person{number}", params={"max_new_tokens": 1})
        wait_until(lambda behind=behind: has_ended(behind))

    def num_received() -> int:
        return sum(worker.log.text.count(" received") for worker in workers)

    wait_until(lambda: num_received() >= num_jobs + 1 + 2 * num_workers)
    last = ask("last", params={"max_new_tokens": 1})
    wait_until(lambda: has_ended(last))
    # One wake for each job and two rounds of the one; a tick may send another one beside a job's own.
    assert num_received() < 3 * (num_jobs + 2 + 2 * num_workers)
    waiting.refresh_from_db()
    assert waiting.state == Job.State.QUEUED
