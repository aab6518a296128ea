"""Jobs of dead and silent workers come back to the line with their text; those of live ones stay."""

import os
import subprocess
import sys
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from generation import conf, process_identity, queue, reaper
from generation.delivery import stream
from generation.delivery.writer import TokenWriter
from generation.models import Job, Worker
from tests.generation.rows import make_job, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_model")]

State = Job.State


def here(**fields: Any) -> Worker:
    """A worker row that means this very process."""
    own = process_identity.current()
    known = {
        "host": own.host,
        "boot_id": own.boot_id,
        "pid_namespace": own.pid_namespace,
        "pid": own.pid,
        "pid_started": own.pid_started,
    }
    return make_worker(**(known | fields))


def silent() -> Any:
    return timezone.now() - timedelta(seconds=conf.lease_seconds() + 1)


def written(job: Job, *texts: str) -> None:
    """Tokens in the job's stream, as its worker wrote them."""
    writer = TokenWriter(conf.redis_url(), lambda _: job.epoch, lambda *_: None)
    writer.start()
    output = writer.open(job.pk, job.epoch)
    assert output is not None
    for number, text in enumerate(texts):
        writer.put(job.pk, job.epoch, (number,), text)
    writer.release(output)
    writer.close()


def test_it_leaves_the_jobs_of_live_workers_alone() -> None:
    make_job(State.RUNNING, worker=here())
    make_job(State.RUNNING, worker=make_worker(boot_id="of another machine"))
    assert reaper.reap() == 0


def test_it_brings_back_the_jobs_of_a_worker_that_was_silent_for_a_lease() -> None:
    """A killed worker's job stayed `running` for ever (ui-insight/vandalizer#825)."""
    job = make_job(State.RUNNING, worker=make_worker(last_seen_at=silent()))
    assert reaper.reap() == 1
    assert reaper.reap() == 0
    job.refresh_from_db()
    assert (job.state, job.worker) == (State.QUEUED, None)


def test_it_brings_back_the_jobs_of_a_dead_process_before_its_lease_is_over() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    worker = here(pid=dead.pid, pid_started=1)
    job = make_job(State.RUNNING, worker=worker)
    assert reaper.reap() == 1
    job.refresh_from_db()
    worker.refresh_from_db()
    assert job.state == State.QUEUED
    assert worker.stopped_at is not None


def test_it_takes_another_process_with_the_same_pid_for_what_it_is() -> None:
    assert not process_identity.is_dead(*process_identity.here(), os.getpid(), process_identity.current().pid_started)
    assert process_identity.is_dead(*process_identity.here(), os.getpid(), 1)


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another"}, {"pid_namespace": "pid:[1]"}, {"boot_id": ""}])
def test_it_judges_no_pid_of_another_machine_or_container(elsewhere: dict[str, Any]) -> None:
    make_job(State.RUNNING, worker=here(pid=2**22 - 1, **elsewhere))
    assert reaper.reap() == 0


def test_it_takes_a_zombie_for_dead() -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        assert process_identity.start_time(zombie.pid) is None
    finally:
        zombie.wait()


def test_it_brings_back_what_runs_under_a_stopped_or_deleted_worker() -> None:
    make_job(State.RUNNING, worker=make_worker(stopped_at=timezone.now()))
    make_job(State.RUNNING, worker=None)
    assert reaper.reap() == 2


def test_it_keeps_the_text_so_far_in_the_row() -> None:
    job = make_job(State.RUNNING, worker=make_worker(last_seen_at=silent()))
    written(job, "one", " two", " three")
    assert reaper.reap() == 1
    job.refresh_from_db()
    assert (job.text, job.last_seq) == ("one two three", 4)


def test_it_keeps_the_text_of_a_cancelled_job_and_starts_it_no_more() -> None:
    job = make_job(
        State.RUNNING, worker=make_worker(last_seen_at=silent()), cancel_requested_at=timezone.now(), id=uuid.uuid4()
    )
    written(job, "one", " two")
    assert reaper.reap() == 1
    job.refresh_from_db()
    assert (job.state, job.text, job.last_seq) == (State.CANCELLED, "one two", 3)


@pytest.mark.parametrize("end", ["reaped", "cancelled in line"])
@pytest.mark.django_db(transaction=True)
def test_a_stream_without_an_end_marker_lives_no_longer_than_one_with_it(end: str) -> None:
    asked_for = {"cancel_requested_at": timezone.now()} if end == "reaped" else {}
    worker = make_worker(last_seen_at=silent())
    job = make_job(State.RUNNING, worker=worker, id=uuid.uuid4(), epoch=1, **asked_for)
    written(job, "one", " two")
    reaper.reap()
    if end == "cancelled in line":
        job.refresh_from_db()
        assert queue.cancel(job)
    job.refresh_from_db()
    assert (job.state, job.text) == (State.CANCELLED, "one two")
    for key in (stream.tokens_key(job.pk), stream.owner_key(job.pk)):
        assert 0 < stream.sync_client().ttl(key) <= stream.ENDED_TTL_SECONDS


def test_it_expires_in_every_queue(settings: Any) -> None:
    settings.GENERATION_MAX_WAIT_SECONDS = 60
    late = timezone.now() - timedelta(seconds=61)
    jobs = [make_job(queue=name, queued_at=late) for name in ("gpu", "slow")]
    reaper.sweep()
    for job in jobs:
        job.refresh_from_db()
        assert job.state == State.EXPIRED
