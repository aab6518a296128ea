"""What is said of a change, when, and to whom: wakes, signals, and the worker that is to stop."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.signals import before_task_publish
from django.db import DatabaseError, connections, transaction
from django.dispatch import Signal

from chatsite.local import ports
from generation import queue, signals
from generation.delivery import stream
from generation.models import Job
from tests.environment import ROOT
from tests.generation.asking import ask, claim, in_threads, person
from tests.generation.rows import make_worker, running_job
from tests.site import PATIENCE_SECONDS, clean_environment

State = Job.State


pytestmark = pytest.mark.usefixtures("one_model", "no_limits")


@pytest.fixture
def published() -> Iterator[list[tuple[str, str]]]:
    """(task id, job it was sent for) of each message that goes to the broker."""
    sent: list[tuple[str, str]] = []

    def note(headers: dict[str, Any], body: Any, **_: Any) -> None:
        sent.append((headers["id"], body[1]["sent_for"]))

    before_task_publish.connect(note)
    yield sent
    before_task_publish.disconnect(note)


@pytest.fixture
def told() -> Iterator[list[tuple[str, Job, bool]]]:
    """(signal's name, job, whether it was sent inside a transaction)."""
    heard: list[tuple[str, Job, bool]] = []
    receivers = []
    for name in ("job_started", "job_finished", "job_failed", "job_cancelled"):

        def hear(sender: Any, job: Job, name: str = name, **_: Any) -> None:
            heard.append((name, job, connections["default"].in_atomic_block))

        signal: Signal = getattr(signals, name)
        signal.connect(hear)
        receivers.append((signal, hear))
    yield heard
    for signal, receiver in receivers:
        signal.disconnect(receiver)


@pytest.mark.django_db(transaction=True)
def test_it_sends_a_wake_for_each_prompt_once_it_is_committed(published: list[tuple[str, str]]) -> None:
    """A delayed send returned no task id, so that nobody could stop the task before it began
    (celery/celery#8976)."""
    with transaction.atomic():
        job = ask()
        assert job.task_id
        assert Job.objects.get().task_id == job.task_id
        assert published == []
    assert published == [(job.task_id, str(job.pk))]


@pytest.mark.django_db(transaction=True)
def test_it_leaves_no_trace_of_a_prompt_whose_transaction_is_rolled_back(published: list[tuple[str, str]]) -> None:
    user = person("ada")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        ask(user.username)
        raise ZeroDivisionError
    assert not Job.objects.exists()
    assert published == []
    assert claim(make_worker()) is None


@pytest.mark.django_db(transaction=True)
def test_it_starts_a_prompt_only_after_the_commit_of_the_transaction_around_it() -> None:
    """Workers were sent ids of rows that were not committed yet (getsentry/sentry#89284)."""
    worker, user = make_worker(), person("ada")
    submitted, claimed = threading.Event(), threading.Event()
    result: list[Job | None] = []

    def act(index: int) -> None:
        if index == 0:
            with transaction.atomic():
                ask(user.username)
                submitted.set()
                # The claim either finds nothing or waits for this transaction's end.
                claimed.wait(0.5)
            return
        submitted.wait()
        result.append(claim(worker))
        claimed.set()

    assert in_threads(2, act) == [None, None]
    job = result[0] or claim(worker)
    assert job is not None and job.state == State.RUNNING


@pytest.mark.django_db(transaction=True)
def test_it_gives_every_wake_a_task_id_of_its_own(published: list[tuple[str, str]]) -> None:
    """A task id that was revoked once swallows every later message with it."""
    job = ask()
    claimed = claim(make_worker())
    assert claimed is not None
    queue.put_back(job.pk, 1, drained=True)
    claim(make_worker())
    queue.end(job.pk, 2, State.FAILED)
    queue.requeue(job)
    queue.pause("gpu")
    queue.resume("gpu")
    assert len({task_id for task_id, _ in published}) == len(published) == 4


@pytest.mark.django_db(transaction=True)
def test_it_tells_of_each_change_after_its_commit_with_a_fresh_job(told: list[tuple[str, Job, bool]]) -> None:
    worker = make_worker()
    finished, failed, stopped, waiting = (ask(f"person{number}") for number in range(4))
    for end in (State.FINISHED, State.FAILED, State.CANCELLED):
        job = claim(worker)
        assert job is not None
        queue.end(job.pk, job.epoch, end, text="said")
    queue.cancel(waiting)
    assert [(name, job.pk, job.state) for name, job, _ in told] == [
        ("job_started", finished.pk, State.RUNNING),
        ("job_finished", finished.pk, State.FINISHED),
        ("job_started", failed.pk, State.RUNNING),
        ("job_failed", failed.pk, State.FAILED),
        ("job_started", stopped.pk, State.RUNNING),
        ("job_cancelled", stopped.pk, State.CANCELLED),
        ("job_cancelled", waiting.pk, State.CANCELLED),
    ]
    assert {job.text for name, job, _ in told if job.pk == finished.pk and job.is_final} == {"said"}
    assert not any(inside for _, _, inside in told)


@pytest.mark.django_db(transaction=True)
def test_it_tells_nothing_of_a_change_that_is_rolled_back(told: list[tuple[str, Job, bool]]) -> None:
    job = ask()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        queue.cancel(job)
        raise ZeroDivisionError
    assert told == []
    assert Job.objects.get().state == State.QUEUED


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [ValueError("broken"), DatabaseError("broken")])
def test_it_leaves_a_job_alone_whose_receiver_raises(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: Any) -> None:
        raise error

    every = (signals.job_started, signals.job_finished)
    for signal in every:
        signal.connect(broken)
    try:
        ask()
        job = claim(make_worker())
        assert job is not None and job.state == State.RUNNING
        assert queue.end(job.pk, 1, State.FINISHED, text="said")
    finally:
        for signal in every:
            signal.disconnect(broken)
    assert Job.objects.get().text == "said"
    assert "broken" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_it_tells_the_worker_to_stop_at_once_and_once(settings: Any) -> None:
    job = running_job()
    with stream.sync_client().pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(f"generation:control:{job.worker_id}")
        heard.get_message(timeout=1)
        queue.cancel(job)
        queue.cancel(job)
        messages = [heard.get_message(timeout=0.2) for _ in range(4)]
    assert [message["data"] for message in messages if message] == [str(job.pk).encode()]


ASK_AND_CANCEL = """
import django
django.setup()
from tests.generation.asking import ask
from generation import queue
job = ask()
print(job.state, queue.cancel(job), job.state)
"""


def test_it_accepts_a_prompt_while_the_broker_is_down(tmp_path: Path) -> None:
    env = clean_environment(
        DJANGO_SETTINGS_MODULE="chatsite.settings",
        CHATSITE_VAR=str(tmp_path),
        DATABASE_URL=f"sqlite:///{tmp_path / 'db.sqlite3'}",
        SECRET_KEY="for-this-test-only",
        REDIS_URL=f"redis://127.0.0.1:{ports.any_free()}/0",
        GENERATION_MODELS="mock=mock:",
    )
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=env, check=True)
    asked = subprocess.run(
        [sys.executable, "-c", ASK_AND_CANCEL],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert asked.stdout.split() == ["queued", "True", "cancelled"], asked.stderr
    assert "a worker's next tick finds the job" in asked.stderr
