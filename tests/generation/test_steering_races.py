"""Steering against claims that race it: what an operator was told has happened, has happened for every claim."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from generation import queue
from generation.models import Job, Priority, Worker
from tests.generation.asking import ask, claim, in_threads
from tests.generation.rows import make_worker
from tests.site import PATIENCE_SECONDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("one_model", "no_limits")]

State = Job.State
NUM_CLAIMERS = 4


def race(steer: Callable[[], Any], take: Callable[[int], Any], num_steering: int = 1) -> list[Any]:
    """Threads that `take` beside one or more that `steer`; nobody fails."""

    def act(index: int) -> Any:
        return take(index) if index < NUM_CLAIMERS else steer()

    results = in_threads(NUM_CLAIMERS + num_steering, act)
    errors = [result for result in results if isinstance(result, Exception)]
    assert not errors, errors
    return results


def test_it_never_both_cancels_a_waiting_job_and_runs_it() -> None:
    """A stop that came in the same moment as the pick-up was lost: the job left the line and ran
    (gradio-app/gradio#13323, gradio-app/gradio#13333).
    """
    workers = [make_worker() for _ in range(NUM_CLAIMERS)]
    jobs = [ask(f"person{number % 6}") for number in range(40)]
    claimed: list[Job] = []

    def take(index: int) -> None:
        while job := claim(workers[index]):
            claimed.append(job)

    def cancel_all() -> list[bool]:
        # As the claims go, so that both are at the same job again and again.
        return [queue.cancel(job) for job in jobs]

    cancelled_at_once = race(cancel_all, take)[-1]
    ran = {job.pk for job in claimed}
    for job, gone in zip(jobs, cancelled_at_once, strict=True):
        job.refresh_from_db()
        if gone:
            assert (job.state, job.epoch, job.worker) == (State.CANCELLED, 0, None)
            assert job.pk not in ran
        else:
            assert (job.state, job.epoch) == (State.RUNNING, 1)
            assert job.pk in ran and job.cancel_requested_at is not None
    assert len(ran) == len(claimed) == cancelled_at_once.count(False)


def test_it_gives_a_worker_nothing_after_its_drain_returned() -> None:
    drained, others = make_worker(), [make_worker() for _ in range(NUM_CLAIMERS - 2)]
    workers = [drained, drained, *others]
    for number in range(40):
        ask(f"person{number}")
    some_claimed, at_drain = threading.Event(), []

    def take(index: int) -> None:
        while claim(workers[index]):
            some_claimed.set()

    def drain() -> None:
        assert some_claimed.wait(PATIENCE_SECONDS)
        assert queue.drain(drained)
        at_drain.append(Job.objects.filter(worker=drained).count())

    race(drain, take)
    assert Job.objects.filter(worker=drained).count() == at_drain[0]
    assert not Job.objects.filter(state=State.QUEUED).exists()
    job = ask("late")
    assert claim(drained) is None
    assert queue.undrain(drained)
    assert claim(drained) == job


def test_it_claims_a_job_next_that_was_moved_to_the_front() -> None:
    """Of claims that began after the move returned, none takes another while that job waits."""
    workers = [make_worker() for _ in range(NUM_CLAIMERS)]
    jobs = [ask(f"person{number}", priority=list(Priority)[number % 3]) for number in range(40)]
    front: list[Job] = []  # the moves that have returned
    passed: list[tuple[Job, Job]] = []

    def take(index: int) -> None:
        while True:
            moved = list(front)
            job = claim(workers[index])
            if job is None:
                return
            waiting = Job.objects.filter(pk__in=[each.pk for each in moved], state=State.QUEUED)
            passed.extend((job, other) for other in waiting if job not in moved)

    def move() -> int:
        number = 0
        for job in reversed(jobs):
            if queue.move_to_front(job):
                number += 1
                front.append(job)
        return number

    num_moved = race(move, take)[-1]
    # A claim may well take a job that was moved even later.
    assert not [job for job, _ in passed if job not in front]
    assert num_moved > 0
    assert not Job.objects.exclude(state=State.RUNNING).exists()


def test_it_puts_a_failed_job_back_once_however_many_ask_for_it() -> None:
    worker = make_worker()
    jobs = [ask(f"person{number}") for number in range(10)]
    while job := claim(worker):
        assert queue.end(job.pk, job.epoch, State.FAILED)
    again: list[bool] = []
    claimed: list[Job] = []
    over = threading.Event()

    def requeue() -> None:
        again.extend(queue.requeue(Job.objects.get(pk=job.pk)) for job in jobs)
        if len(again) == 3 * len(jobs):
            over.set()

    def take(index: int) -> None:
        while not over.is_set() or Job.objects.filter(state=State.QUEUED).exists():
            if job := claim(worker):
                claimed.append(job)

    race(requeue, take, num_steering=3)
    assert again.count(True) == len(jobs)
    assert sorted(job.pk for job in claimed) == sorted(job.pk for job in jobs)
    assert {job.epoch for job in claimed} == {2}


def test_it_steers_in_every_way_at_once_without_a_deadlock() -> None:
    """Each job ends in one way, and the line is the one that the rows tell."""
    workers: list[Worker] = [make_worker() for _ in range(NUM_CLAIMERS)]
    jobs = [ask(f"person{number % 5}") for number in range(40)]
    turn = iter(range(1000))

    def take(index: int) -> int:
        number = 0
        for _ in range(25):
            if job := claim(workers[index]):
                number += 1
                ends = number % 3
                if ends == 0:
                    queue.put_back(job.pk, job.epoch, drained=True)
                else:
                    queue.end(job.pk, job.epoch, State.FAILED if ends == 1 else State.FINISHED)
        return number

    def steer() -> None:
        mine = next(turn)
        for number, job in enumerate(jobs):
            known = Job.objects.get(pk=job.pk)
            match (mine + number) % 5:
                case 0:
                    queue.cancel(known)
                case 1:
                    queue.move_to_front(known)
                case 2:
                    queue.requeue(known)
                case 3:
                    queue.pause("gpu")
                    queue.resume("gpu")
                case _:
                    queue.drain(workers[number % NUM_CLAIMERS])
                    queue.undrain(workers[number % NUM_CLAIMERS])

    race(steer, take, num_steering=3)
    expected = list(queue.positions("gpu"))
    found = []
    while job := claim(workers[0]):
        found.append(job.pk)
    assert found == expected
    for job in jobs:
        job.refresh_from_db()
        assert job.is_final or job.pk in found
        assert not (job.state == State.CANCELLED and job.epoch == 0 and job.worker_id)
