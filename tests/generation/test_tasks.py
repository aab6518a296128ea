"""The Celery task: which job it runs, what it returns, and that it is only a wake."""

from collections.abc import Iterator
from typing import Any

import pytest

from generation import queue, tasks
from generation.delivery import stream
from generation.models import Job
from tests.generation.asking import ask
from tests.generation.workers import CeleryWorker, has_ended, wait_until


@pytest.fixture
def worker(transactional_db: None, settings: Any) -> Iterator[CeleryWorker]:
    settings.GENERATION_MODELS = "mock=mock:"
    stream.sync_client().delete("gpu")
    queue.pause("gpu")
    process = CeleryWorker("tasks@test", "-P", "threads", "-c", "1").wait_until_ready()
    yield process
    process.process.kill()
    process.wait()
    print(process.log.text)


def test_it_runs_whichever_job_is_first_and_returns_its_id(worker: CeleryWorker) -> None:
    """The message names the job whose submit sent it; the row decides which one is run."""
    sent_for, first = ask("ada", params={"max_new_tokens": 2}), ask("bob", params={"max_new_tokens": 2})
    queue.move_to_front(first)
    queue.resume("gpu")
    wait_until(lambda: has_ended(first) and has_ended(sent_for))
    ended = [
        worker.log.wait_for(lambda line, job=job: "succeeded in" in line and str(job.pk) in line)
        for job in (first, sent_for)
    ]
    assert f"[{first.task_id}]" in ended[0]
    assert f"[{sent_for.task_id}]" in ended[1]


def test_it_runs_a_job_once_however_many_messages_come_for_it(worker: CeleryWorker) -> None:
    job = ask(params={"max_new_tokens": 5})
    for _ in range(5):
        tasks.generate.apply_async(kwargs={"sent_for": str(job.pk)}, queue="gpu")
    queue.resume("gpu")
    wait_until(lambda: has_ended(job))
    wait_until(lambda: stream.sync_client().llen("gpu") == 0)
    wait_until(lambda: worker.log.text.count("succeeded in") >= 6)
    job.refresh_from_db()
    assert (job.state, job.epoch) == (Job.State.FINISHED, 1)


def test_it_runs_the_next_job_when_the_task_of_one_was_revoked(worker: CeleryWorker) -> None:
    """A task that an operator revokes in Flower takes no job with it."""
    from chatsite.celery import app

    job = ask(params={"max_new_tokens": 2})
    app.control.revoke(job.task_id)
    worker.log.wait_for(lambda line: job.task_id in line and "revoked" in line.lower())
    queue.resume("gpu")
    wait_until(lambda: has_ended(job))
    assert job.state == Job.State.FINISHED


def test_it_says_what_is_missing_in_a_process_without_engines() -> None:
    with pytest.raises(RuntimeError, match="has no engine"):
        tasks.generate.run()
