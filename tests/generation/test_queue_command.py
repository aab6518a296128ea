"""`manage.py queue`: the operator's hand on the line."""

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from generation import queue as line
from generation.models import Job, Queue
from tests.generation.rows import make_job, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_model")]


def told(*args: str) -> str:
    out = StringIO()
    call_command("queue", *args, stdout=out)
    return out.getvalue()


def test_it_lists_the_line_in_order() -> None:
    make_worker(busy=1)
    running = make_job(Job.State.RUNNING)
    second, first = make_job(place=20), make_job(place=10)
    text = told("list")
    assert "gpu: 1 of 4 running, 2 of" in text
    assert text.index(str(running.pk)) < text.index(str(first.pk)) < text.index(str(second.pk))


def test_it_pauses_and_resumes_the_only_queue_without_its_name() -> None:
    told("pause")
    assert Queue.objects.get().paused
    assert "paused" in told("list")
    told("resume", "gpu")
    assert not Queue.objects.get().paused


def test_it_asks_for_a_name_where_there_are_several_queues(settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: large=mock:?queue=large"
    with pytest.raises(CommandError, match="gpu, large"):
        told("pause")


def test_it_forgets_a_queue_that_is_configured_no_longer_once_its_jobs_have_ended() -> None:
    make_job(Job.State.FINISHED, queue="old")
    job = make_job(queue="older")
    assert "older: " in told("list")
    assert "old: " not in told("list")
    told("cancel", str(job.pk))
    assert "older: " not in told("list")
    told("pause")
    assert Queue.objects.get(paused=True).name == "gpu"


def test_it_tells_how_long_a_job_waits_again_that_was_put_back() -> None:
    now = timezone.now()
    started, queued = now - timedelta(minutes=5), now - timedelta(seconds=61)
    job = make_job(first_started_at=started, created_at=started, queued_at=queued, epoch=1)
    fresh = make_job(place=2, created_at=started, queued_at=started)
    lines = {line.split()[1]: line for line in told("list").splitlines() if line.startswith("  ")}
    assert re.search(r"waited 6\d s, put back$", lines[str(job.pk)])
    assert re.search(r"waited 30\d s$", lines[str(fresh.pk)])


def test_it_makes_no_queue_out_of_a_typing_error() -> None:
    with pytest.raises(CommandError, match="no queue 'gpo'"):
        told("pause", "gpo")
    assert not Queue.objects.filter(name="gpo").exists()


def test_it_cancels_a_waiting_job_by_the_beginning_of_its_id() -> None:
    job = make_job()
    assert "is cancelled" in told("cancel", str(job.pk)[:8])
    job.refresh_from_db()
    assert job.state == Job.State.CANCELLED


def test_it_says_that_a_running_job_is_asked_to_stop() -> None:
    job = make_job(Job.State.RUNNING, worker=make_worker())
    assert "was asked to stop" in told("cancel", str(job.pk))


def test_it_refuses_to_cancel_what_has_ended() -> None:
    job = make_job(Job.State.FINISHED)
    with pytest.raises(CommandError, match="has ended already: finished"):
        told("cancel", str(job.pk))


def test_it_requeues_a_failed_job_and_no_other() -> None:
    failed, finished = make_job(Job.State.FAILED), make_job(Job.State.FINISHED)
    told("requeue", str(failed.pk))
    failed.refresh_from_db()
    assert failed.state == Job.State.QUEUED
    with pytest.raises(CommandError, match="only a failed one"):
        told("requeue", str(finished.pk))


def test_it_moves_a_waiting_job_to_the_front() -> None:
    make_job(place=1)
    last = make_job(place=900)
    told("front", str(last.pk))
    assert line.positions("gpu")[last.pk] == 1
    with pytest.raises(CommandError, match="only a waiting one"):
        told("front", str(make_job(Job.State.RUNNING).pk))


@pytest.mark.parametrize("by", ["id", "hostname"])
def test_it_drains_a_worker_and_ends_the_drain(by: str) -> None:
    worker = make_worker()
    name = str(getattr(worker, by))
    assert "takes no new jobs" in told("drain", name)
    worker.refresh_from_db()
    assert worker.draining
    with pytest.raises(CommandError, match="drains already"):
        told("drain", name)
    assert "takes jobs again" in told("undrain", name)
    worker.refresh_from_db()
    assert not worker.draining
    with pytest.raises(CommandError, match="doesn't drain"):
        told("undrain", name)


@pytest.mark.parametrize("name", ["", "xyz", "00000000-0000-0000-0000-000000000000", "0" * 40])
def test_it_says_which_job_it_does_not_find(name: str) -> None:
    make_job()
    with pytest.raises(CommandError):
        told("cancel", name)
