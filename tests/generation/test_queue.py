"""States of a job: each change happens once, under the epoch of its claim, and is told after its commit."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from generation import line, queue
from generation.models import Job, Queue
from tests.generation.asking import ask, claim, in_threads, person
from tests.generation.rows import make_job, make_worker, running_job

State = Job.State


pytestmark = pytest.mark.usefixtures("one_model", "no_limits")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        lambda job, epoch: queue.end(job.pk, epoch, State.FINISHED, text="theirs"),
        lambda job, epoch: queue.end(job.pk, epoch, State.FAILED, text="theirs"),
        lambda job, epoch: queue.put_back(job.pk, epoch, drained=False, text="theirs"),
        lambda job, epoch: queue.put_back(job.pk, epoch, drained=True, text="theirs"),
    ],
)
@pytest.mark.parametrize("cancelled", [False, True])
def test_it_lets_an_older_claim_change_nothing(change: Callable[[Job, int], bool], cancelled: bool) -> None:
    job = running_job(epoch=3, text="mine", cancel_requested_at=timezone.now() if cancelled else None)
    assert not change(job, 2)
    assert not change(job, 4)
    job.refresh_from_db()
    assert (job.state, job.epoch, job.attempt, job.text) == (State.RUNNING, 3, 1, "mine")


@pytest.mark.django_db
def test_it_lets_an_older_claim_report_no_progress() -> None:
    job = running_job(epoch=3, completion_tokens=5)
    Job.objects.update(attempt=2)
    older = Job.objects.get()
    older.epoch = 2
    queue.note_progress(older, 100)
    job.refresh_from_db()
    assert (job.attempt, job.completion_tokens) == (2, 5)


@pytest.mark.django_db
@pytest.mark.parametrize("state", Job.FINAL)
def test_it_never_changes_an_end(state: Job.State) -> None:
    job = make_job(state, text="the end")
    assert not queue.end(job.pk, job.epoch, State.FINISHED, text="another")
    assert not queue.put_back(job.pk, job.epoch, drained=False)
    assert queue.cancel(job)
    assert not queue.move_to_front(job)
    job.refresh_from_db()
    assert (job.state, job.text, job.cancel_requested_at) == (state, "the end", None)


@pytest.mark.django_db(transaction=True)
def test_it_lets_one_of_many_ends_win() -> None:
    job = running_job()
    ends = [State.FINISHED, State.FAILED, State.CANCELLED]

    def act(index: int) -> bool:
        if index == 7:
            return queue.put_back(job.pk, 1, drained=False)
        return queue.end(job.pk, 1, ends[index % 3], text=str(index))

    assert sorted(map(str, in_threads(8, act))) == ["False"] * 7 + ["True"]


@pytest.mark.django_db
def test_it_raises_the_epoch_with_each_claim_and_never_resets_it() -> None:
    worker = make_worker()
    ask()
    for epoch in (1, 2):
        job = claim(worker)
        assert job is not None and job.epoch == epoch
        queue.put_back(job.pk, job.epoch, drained=True)
    job = claim(worker)
    assert job is not None
    queue.end(job.pk, job.epoch, State.FAILED)
    assert queue.requeue(job)
    again = claim(worker)
    assert again is not None and again.epoch == 4


@pytest.mark.django_db
def test_it_notes_who_claimed_a_job_and_when() -> None:
    worker, asked = make_worker(), ask()
    job = queue.claim("gpu", ["mock"], worker, "the-task")
    assert job == asked
    assert (job.state, job.worker, job.task_id) == (State.RUNNING, worker, "the-task")
    assert job.started_at is not None and job.first_started_at == job.started_at >= job.queued_at
    queue.put_back(job.pk, job.epoch, drained=True)
    again = claim(worker)
    assert again is not None and again.started_at is not None
    assert again.first_started_at == job.first_started_at < again.started_at


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [{"draining": True}, {"stopped_at": timezone.now()}])
def test_it_gives_a_draining_or_stopped_worker_nothing(fields: dict[str, Any]) -> None:
    ask()
    assert claim(make_worker(**fields)) is None


@pytest.mark.django_db
def test_it_puts_a_job_back_before_all_that_waited_behind_it() -> None:
    worker = make_worker()
    first = ask("ada")
    assert claim(worker) == first
    for number in range(5):
        ask(f"person{number}")
    queue.put_back(first.pk, 1, drained=False, text="so far", last_seq=2)
    first.refresh_from_db()
    assert (first.state, first.worker, first.text) == (State.QUEUED, None, "so far")
    assert claim(worker) == first


@pytest.mark.django_db
def test_it_refuses_no_job_that_comes_back_by_a_limit(settings: Any) -> None:
    worker, job = make_worker(), ask()
    claim(worker)
    settings.GENERATION_MAX_QUEUE_SIZE = settings.GENERATION_MAX_JOBS_PER_USER = 1
    ask("bob")
    assert queue.put_back(job.pk, 1, drained=False)


@pytest.mark.django_db
@pytest.mark.parametrize("drained", [True, False])
def test_it_cancels_a_job_that_comes_back_after_it_was_asked_to_stop(drained: bool) -> None:
    job = running_job()
    assert not queue.cancel(job)
    job.refresh_from_db()
    assert job.state == State.RUNNING and job.cancel_requested_at is not None
    asked_at = job.cancel_requested_at
    assert not queue.cancel(job)
    assert queue.put_back(job.pk, 1, drained=drained, text="so far", last_seq=3)
    job.refresh_from_db()
    assert (job.state, job.text, job.last_seq, job.cancel_requested_at) == (State.CANCELLED, "so far", 3, asked_at)
    assert job.ended_at is not None


@pytest.mark.django_db
def test_it_lets_a_reply_that_ends_first_win_over_its_cancellation() -> None:
    job = running_job()
    queue.cancel(job)
    assert queue.end(job.pk, 1, State.FINISHED, text="all of it")
    job.refresh_from_db()
    assert job.state == State.FINISHED


@pytest.mark.django_db
def test_it_counts_no_drain_as_a_failed_attempt() -> None:
    worker, job = make_worker(), ask()
    for _ in range(5):
        claimed = claim(worker)
        assert claimed is not None and claimed.attempt == 1
        assert queue.note_progress(claimed, 0)
        queue.put_back(job.pk, claimed.epoch, drained=True)


@pytest.mark.django_db
def test_it_gives_up_after_three_claims_without_progress() -> None:
    worker, job = make_worker(), ask()
    allowed = []
    for _ in range(4):
        claimed = claim(worker)
        assert claimed is not None
        allowed.append(queue.note_progress(claimed, 0))
        queue.put_back(job.pk, claimed.epoch, drained=False)
    assert allowed == [True, True, True, False]


@pytest.mark.django_db
def test_it_goes_on_as_long_as_each_claim_brings_tokens() -> None:
    worker, job = make_worker(), ask()
    for tokens in (0, 0, 1, 1, 1, 5, 9):
        claimed = claim(worker)
        assert claimed is not None
        assert queue.note_progress(claimed, tokens)
        queue.put_back(job.pk, claimed.epoch, drained=False)


@pytest.mark.django_db
def test_it_counts_progress_anew_after_redis_lost_the_tokens() -> None:
    """A long reply that had begun again was taken for what killed its workers, though each claim wrote more of it."""
    worker, job = make_worker(), ask()
    for tokens in (0, 800, 0, 40, 80, 120, 160):
        claimed = claim(worker)
        assert claimed is not None
        assert queue.note_progress(claimed, tokens)
        queue.put_back(job.pk, claimed.epoch, drained=False)


@pytest.mark.django_db
def test_it_requeues_a_failed_job_as_if_it_were_new() -> None:
    worker = make_worker()
    job = ask()
    claimed = claim(worker)
    assert claimed is not None
    queue.end(
        job.pk,
        1,
        State.FAILED,
        text="half",
        origin=1,
        last_seq=4,
        prompt_tokens=3,
        completion_tokens=3,
        cached_tokens=1,
        timings={"total": 1.0},
        error_code="engine_error",
        error_message="it broke",
        error_traceback="Traceback",
    )
    later = ask("bob")
    job.refresh_from_db()
    assert queue.requeue(job)
    assert not queue.requeue(job)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.epoch, job.discarded_origin) == (State.QUEUED, 0, 1, 1)
    assert (job.text, job.origin, job.last_seq, job.timings) == ("", 0, 0, {})
    assert (job.prompt_tokens, job.completion_tokens, job.cached_tokens) == (0, 0, 0)
    assert (job.error_code, job.error_message, job.error_traceback) == ("", "", "")
    assert (job.first_started_at, job.started_at, job.ended_at, job.worker) == (None, None, None, None)
    assert list(line.positions("gpu")) == [later.pk, job.pk]


@pytest.mark.django_db
@pytest.mark.parametrize("state", [state for state in State if state != State.FAILED])
def test_it_requeues_only_what_failed_and_moves_nothing_for_the_rest(state: Job.State) -> None:
    job = make_job(state)
    before = Queue.objects.get().virtual_time
    assert not queue.requeue(job)
    assert Queue.objects.get().virtual_time == before


@pytest.mark.django_db
def test_it_expires_what_waited_too_long_but_nothing_that_has_started_once(settings: Any) -> None:
    settings.GENERATION_MAX_WAIT_SECONDS = 60
    old = timezone.now() - timedelta(seconds=61)
    late, started, fresh = ask(), ask(), ask()
    Job.objects.filter(pk__in=[late.pk, started.pk]).update(queued_at=old)
    Job.objects.filter(pk=started.pk).update(first_started_at=old)
    assert queue.expire("gpu") == 1
    assert queue.expire("gpu") == 0
    late.refresh_from_db()
    assert late.state == State.EXPIRED and late.ended_at is not None
    assert late.error_message == "Its turn did not come within 60 s, the longest that a prompt may wait."
    assert set(line.positions("gpu")) == {started.pk, fresh.pk}


@pytest.mark.django_db
def test_it_expires_at_the_claim_too_and_takes_the_next(settings: Any) -> None:
    late, fresh = ask("ada"), ask("bob")
    Queue.objects.update(max_wait_seconds=60)
    Job.objects.filter(pk=late.pk).update(queued_at=timezone.now() - timedelta(seconds=61))
    assert claim(make_worker()) == fresh
    late.refresh_from_db()
    assert late.state == State.EXPIRED


@pytest.mark.django_db(transaction=True)
def test_it_meets_no_lock_while_threads_end_jobs_and_others_write() -> None:
    """The default database answered `database is locked` at once, whatever its timeout, when a transaction read
    first and wrote later (learningequality/kolibri#13878)."""
    worker = make_worker()
    each = 25
    for number in range(4 * each):
        ask(f"person{number % 10}")
    user = person("other")

    def act(index: int) -> int:
        done = 0
        for _ in range(each):
            if index < 4:
                job = claim(worker)
                assert job is not None
                queue.note_progress(job, 1)
                done += queue.end(job.pk, job.epoch, State.FINISHED, text="said " * 200)
            elif index < 6:
                queue.cancel(ask(user.username))  # or a claim was first
                done += 1
            else:
                user.first_name = uuid.uuid4().hex
                user.save(update_fields=["first_name"])
                done += Queue.objects.filter(pk="gpu").exists()
        return done

    assert in_threads(8, act) == [each] * 8
