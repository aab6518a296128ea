"""Jobs that wait for a model which can't be had end with a reason, and none does in an upgrade or a restart."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.utils import timezone

from generation import absence, conf, queue, signals
from generation.absence import AbsentModels
from generation.delivery import stream
from generation.models import Job, Worker
from tests.generation.asking import operator, person
from tests.generation.rows import make_job, make_worker

pytestmark = pytest.mark.django_db(transaction=True)

State = Job.State
LEASE = 10.0
FAILED = [
    {"name": "mock", "state": "ready", "error": ""},
    {"name": "broken", "state": "failed", "error": "FileNotFoundError: there is no file /secret/place/model.gguf"},
]


class Clock:
    """Stands still unless it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def settings_of_this_process(settings: Any) -> Iterator[None]:
    settings.GENERATION_MODELS = "mock=mock: broken=mock:"
    settings.GENERATION_LEASE_SECONDS = LEASE
    for key in stream.sync_client().scan_iter(absence.CONFIGURED.format("*", "*")):
        stream.sync_client().delete(key)
    yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def process(clock: Clock) -> AbsentModels:
    """A web process."""
    return AbsentModels(clock)


def old_job(model: str, **fields: Any) -> Job:
    """One that was accepted so long ago that its model may have been removed since."""
    return make_job(model=model, queued_at=timezone.now() - timedelta(seconds=absence.forgotten_seconds()), **fields)


def pass_time(process: AbsentModels, clock: Clock, seconds: float = LEASE) -> int:
    """Tick for so long, a second at a time; how many jobs were ended."""
    ended = process.sweep()
    for _ in range(round(seconds)):
        clock.now += 1
        ended += process.sweep()
    return ended


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return job.state


def test_a_job_fails_whose_model_every_live_worker_failed_to_load(process: AbsentModels, clock: Clock) -> None:
    make_worker(models=FAILED)
    make_worker(hostname="celery@two", models=FAILED)
    job, other = make_job(model="broken"), make_job(place=2)
    assert pass_time(process, clock) == 1
    assert state_of(job) == State.FAILED
    assert job.error_code == "model_unavailable"
    assert job.error_message == "The model broken could not be loaded: its files are missing."
    assert "/secret/place/model.gguf" in job.error_traceback and "celery@two" in job.error_traceback
    assert job.ended_at is not None
    assert state_of(other) == State.QUEUED


def test_staff_are_told_the_workers_own_words(process: AbsentModels, clock: Clock) -> None:
    make_worker(models=FAILED)
    operator()
    job = make_job(model="broken", person="operator")
    pass_time(process, clock)
    assert state_of(job) == State.FAILED
    assert "there is no file /secret/place/model.gguf" in job.error_message


def test_a_job_fails_whose_model_is_configured_nowhere_any_more(process: AbsentModels, clock: Clock) -> None:
    make_worker()
    job = old_job("removed")
    assert pass_time(process, clock) == 1
    assert (state_of(job), job.error_code) == (State.FAILED, "model_unavailable")
    assert job.error_message == "The model removed is no longer offered here."


def test_a_job_fails_whose_model_has_moved_to_another_queue(process: AbsentModels, clock: Clock, settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: moved=mock:?queue=large"
    job, there = old_job("moved"), old_job("moved", queue="large")
    pass_time(process, clock)
    assert (state_of(job), state_of(there)) == (State.FAILED, State.QUEUED)


def test_no_job_fails_before_a_lease_is_over(process: AbsentModels, clock: Clock) -> None:
    make_worker(models=FAILED)
    job = make_job(model="broken")
    assert pass_time(process, clock, LEASE - 1) == 0
    assert state_of(job) == State.QUEUED


def test_a_worker_that_loads_the_model_begins_the_wait_anew(process: AbsentModels, clock: Clock) -> None:
    make_worker(models=FAILED)
    make_job(model="broken")
    pass_time(process, clock, LEASE - 1)
    loading = make_worker(hostname="celery@two", models=[{"name": "broken", "state": "loading", "error": ""}])
    pass_time(process, clock, 2 * LEASE)
    Worker.objects.filter(pk=loading.pk).update(stopped_at=timezone.now())
    assert pass_time(process, clock, LEASE - 1) == 0
    assert pass_time(process, clock, 1) == 1


def test_a_process_that_did_not_look_for_a_while_begins_the_wait_anew(process: AbsentModels, clock: Clock) -> None:
    make_worker(models=FAILED)
    make_job(model="broken")
    process.sweep()
    clock.now += 1000
    assert process.sweep() == 0


def test_no_job_fails_while_no_worker_is_up(process: AbsentModels, clock: Clock) -> None:
    job = old_job("broken")
    assert pass_time(process, clock, 10 * LEASE) == 0
    assert state_of(job) == State.QUEUED


def test_no_job_fails_in_a_process_that_was_not_upgraded_yet(
    process: AbsentModels, clock: Clock, settings: Any
) -> None:
    """The other web process has a new model; its worker comes later, and this process never heard of it."""
    job = old_job("new")
    for _ in range(round(3 * LEASE)):
        settings.GENERATION_MODELS = "mock=mock: new=mock:"
        absence.note_configured()
        settings.GENERATION_MODELS = "mock=mock:"
        assert pass_time(process, clock, 1) == 0
    assert state_of(job) == State.QUEUED


def test_no_job_of_an_unknown_model_fails_that_was_accepted_lately(process: AbsentModels, clock: Clock) -> None:
    """Somebody accepted it, so somebody knows the model, whether that process still has sockets and ticks or not."""
    job = make_job(model="new")
    assert pass_time(process, clock, 2 * LEASE) == 0
    assert state_of(job) == State.QUEUED


@pytest.mark.parametrize("state", ["loading", "ready"])
def test_no_job_fails_while_a_worker_has_its_model(process: AbsentModels, clock: Clock, state: str) -> None:
    make_worker(models=[{"name": "new", "state": state, "error": ""}])
    job = old_job("new")
    assert pass_time(process, clock, 2 * LEASE) == 0
    assert state_of(job) == State.QUEUED


def test_a_worker_that_ended_for_want_of_a_model_counts_until_it_is_started_again(
    process: AbsentModels, clock: Clock
) -> None:
    """Its supervisor pauses longer and longer, and between its starts there is no worker at all."""
    only = [FAILED[1]]
    make_worker(models=only, stopped_at=timezone.now())
    job = make_job(model="broken")
    assert pass_time(process, clock, LEASE - 1) == 0
    again = make_worker(models=[{"name": "broken", "state": "loading", "error": ""}])
    assert pass_time(process, clock) == 0
    Worker.objects.filter(pk=again.pk).update(stopped_at=timezone.now(), models=only)
    assert pass_time(process, clock) == 1
    assert state_of(job) == State.FAILED


def test_a_worker_that_could_load_the_model_after_all_outweighs_its_start_before(
    process: AbsentModels, clock: Clock
) -> None:
    """Then somebody stopped it: now there is merely no worker."""
    make_worker(models=[FAILED[1]], stopped_at=timezone.now())
    mended = [{"name": "broken", "state": "ready", "error": ""}]
    make_worker(models=mended, stopped_at=timezone.now())
    job = make_job(model="broken")
    assert pass_time(process, clock, 2 * LEASE) == 0
    assert state_of(job) == State.QUEUED


def test_a_worker_that_failed_and_ended_long_ago_says_nothing(process: AbsentModels, clock: Clock) -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    make_worker(models=[FAILED[1]], stopped_at=long_ago, last_seen_at=long_ago)
    job = make_job(model="broken")
    assert pass_time(process, clock, 2 * LEASE) == 0
    assert state_of(job) == State.QUEUED


def test_a_failed_job_gives_its_turn_back_and_says_that_it_failed(
    process: AbsentModels, clock: Clock, settings: Any
) -> None:
    settings.GENERATION_MODELS = "mock=mock: removed=mock:"
    ada = [
        queue.submit(person("ada"), [{"role": "user", "content": "hi"}], model=model) for model in ("removed", "mock")
    ]
    settings.GENERATION_MODELS = "mock=mock:"
    Job.objects.update(queued_at=timezone.now() - timedelta(seconds=absence.forgotten_seconds()))
    stream.sync_client().delete(absence.CONFIGURED.format("gpu", "removed"))
    make_worker()
    heard: list[Job] = []

    def hear(job: Job, **_: Any) -> None:
        heard.append(job)

    signals.job_failed.connect(hear)
    try:
        before = ada[1].order_key
        assert pass_time(process, clock) == 1
    finally:
        signals.job_failed.disconnect(hear)
    assert [job.pk for job in heard] == [ada[0].pk]
    ada[1].refresh_from_db()
    assert ada[1].order_key < before


def test_a_job_is_not_failed_that_a_worker_has_claimed_meanwhile() -> None:
    job = make_job(State.RUNNING, model="broken")
    assert queue.fail_waiting("gpu", "broken", timezone.now(), absence.CODE, lambda _: "no", "no") == 0
    assert state_of(job) == State.RUNNING


def test_a_paused_queue_keeps_its_jobs_while_the_operator_mends_the_model(process: AbsentModels, clock: Clock) -> None:
    make_worker(models=FAILED)
    job = make_job(model="broken")
    queue.pause("gpu")
    assert pass_time(process, clock, 2 * LEASE) == 0
    queue.resume("gpu")
    assert pass_time(process, clock, 1) == 1
    assert state_of(job) == State.FAILED


def test_the_rest_of_a_long_line_is_failed_at_the_next_tick(process: AbsentModels, clock: Clock) -> None:
    for place in range(queue.MAX_FAILED_AT_ONCE + 5):
        make_job(model="broken", place=place)
    make_worker(models=FAILED)
    assert pass_time(process, clock) == queue.MAX_FAILED_AT_ONCE
    assert pass_time(process, clock, 1) == 5


def test_nothing_is_counted_while_redis_does_not_say_what_others_know(
    process: AbsentModels, clock: Clock, settings: Any
) -> None:
    old_job("removed")
    pass_time(process, clock, LEASE - 1)
    address = conf.redis_url()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    stream.sync_client.cache_clear()
    clock.now += 1
    with pytest.raises(redis.ConnectionError):
        process.sweep()
    settings.REDIS_URL = address
    stream.sync_client.cache_clear()
    assert pass_time(process, clock, LEASE - 1) == 0
