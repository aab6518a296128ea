"""The ledger: each end of a job is charged once, with what was computed, whoever ends it and however often."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generation import ledger, queue, reaper, running
from generation.engine import ModelSpec, load_engine
from generation.models import Job, TokenUse
from generation.running import Claim
from tests.generation.asking import ask, claim, in_threads
from tests.generation.rows import make_job, make_worker, running_job
from tests.generation.token_writers import PATIENCE_SECONDS, Worker, claimed_again, started_workers

State = Job.State
PEOPLE = ("ada", "bob", "eve")
PROMPT = 3
COUNTS = {"prompt_tokens": PROMPT, "completion_tokens": 4}


pytestmark = pytest.mark.usefixtures("one_model", "no_limits")


def used() -> dict[str, int]:
    return dict(TokenUse.objects.values_list("user__username", "tokens"))


@pytest.mark.django_db
@pytest.mark.parametrize("state", [State.FINISHED, State.FAILED, State.CANCELLED])
def test_it_charges_the_prompt_and_the_reply_of_whatever_ends(state: Job.State) -> None:
    job = running_job()
    assert queue.end(job.pk, 1, state, **COUNTS)
    assert used() == {"ada": 7}


@pytest.mark.django_db
def test_it_adds_up_a_day_and_begins_another_at_midnight_utc() -> None:
    jobs = [make_job(State.FINISHED, place=place, **COUNTS) for place in (1, 2, 3)]
    late = datetime(2031, 2, 3, 23, 59, 59, tzinfo=UTC)
    east = late.astimezone(timezone.get_fixed_timezone(600))  # there it is the next day's morning
    for job, instant in zip(jobs, (late, east, late + timedelta(seconds=1)), strict=True):
        ledger.charge(job.pk, instant)
    days = TokenUse.objects.order_by("day").values_list("day", "tokens")
    assert [(day.isoformat(), tokens) for day, tokens in days] == [("2031-02-03", 14), ("2031-02-04", 7)]


@pytest.mark.django_db
def test_it_charges_nothing_for_what_never_ran() -> None:
    queue.cancel(ask())
    ask()
    queue.fail_waiting("gpu", "mock", timezone.now(), "model_unavailable", lambda user: "gone", "")
    ask()
    Job.objects.filter(state=State.QUEUED).update(queued_at=timezone.now() - timedelta(days=1))
    assert queue.expire("gpu") == 1
    assert used() == {}


@pytest.mark.django_db(transaction=True)
def test_it_charges_a_claim_once_that_many_end_at_once() -> None:
    job = running_job()
    queue.cancel(job)

    def act(index: int) -> bool:
        if index % 2:
            return queue.put_back(job.pk, 1, drained=False, last_seq=5, prompt_tokens=PROMPT)
        return queue.end(job.pk, 1, State.FINISHED, **COUNTS)

    assert sorted(map(str, in_threads(8, act))) == ["False"] * 7 + ["True"]
    assert used() == {"ada": 7}


@pytest.mark.django_db(transaction=True)
def test_it_adds_up_what_many_jobs_of_one_person_that_end_at_once_have_used() -> None:
    jobs = [running_job(place=place) for place in range(8)]
    assert in_threads(8, lambda index: queue.end(jobs[index].pk, 1, State.FINISHED, **COUNTS)) == [True] * 8
    assert used() == {"ada": 8 * 7}


@pytest.mark.django_db
def test_it_charges_a_job_that_was_handed_over_at_its_end_alone_and_its_prompt_once() -> None:
    worker, job = make_worker(), ask()
    for written in (2, 5):
        claimed = claim(worker)
        assert claimed is not None
        queue.put_back(job.pk, claimed.epoch, drained=True, last_seq=written + 1, prompt_tokens=PROMPT)
        assert used() == {}
    claimed = claim(worker)
    assert claimed is not None
    queue.end(job.pk, claimed.epoch, State.FINISHED, prompt_tokens=PROMPT, completion_tokens=9)
    assert used() == {"ada": PROMPT + 9}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "end",
    [
        lambda job: queue.cancel(job),
        lambda job: queue.fail_waiting("gpu", "mock", timezone.now(), "model_unavailable", lambda user: "gone", ""),
    ],
    ids=["cancelled", "failed"],
)
def test_it_charges_what_was_written_before_a_job_ends_back_in_line(end: Callable[[Job], object]) -> None:
    job = running_job()
    queue.put_back(job.pk, 1, drained=True, last_seq=6, prompt_tokens=PROMPT)
    job.refresh_from_db()
    assert end(job)
    assert used() == {"ada": PROMPT + 5}
    job.refresh_from_db()
    assert (job.prompt_tokens, job.completion_tokens) == (PROMPT, 5)


@pytest.mark.django_db
def test_it_charges_again_what_a_requeued_job_computes_again() -> None:
    worker, job = make_worker(), ask()
    claim(worker)
    queue.end(job.pk, 1, State.FAILED, **COUNTS)
    job.refresh_from_db()
    queue.requeue(job)
    claim(worker)
    queue.end(job.pk, 2, State.FINISHED, prompt_tokens=PROMPT, completion_tokens=1)
    assert used() == {"ada": 7 + PROMPT + 1}


@pytest.mark.django_db
def test_it_charges_nothing_more_for_a_requeued_job_that_ends_in_line() -> None:
    job = running_job()
    queue.end(job.pk, 1, State.FAILED, last_seq=5, **COUNTS)
    job.refresh_from_db()
    queue.requeue(job)
    queue.cancel(job)
    assert used() == {"ada": 7}


OPERATIONS = (
    "ask", "claim", "write", "finish", "fail", "stop", "drain", "lose", "cancel", "requeue", "give up", "delete",
)  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5), st.booleans()), min_size=10, max_size=60)


@pytest.mark.django_db
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_ledger_is_the_sum_of_what_ended_jobs_computed_whatever_happened(
    steps: list[tuple[str, int, bool]],
) -> None:
    """`stale` acts for an older claim, which must change nothing."""
    Job.objects.all().delete()
    TokenUse.objects.all().delete()
    worker = make_worker()
    expected, written, prompts = Counter[str](), Counter[Any](), Counter[Any]()
    states: dict[Any, str] = {}
    for operation, number, stale in steps:
        if operation == "claim":
            if claimed := claim(worker):
                queue.note_progress(claimed, written[claimed.pk])
        elif operation == "ask" or not states:
            ask(PEOPLE[number % 3])
        else:
            job = Job.objects.get(pk=list(states)[number % len(states)])
            epoch = job.epoch - stale
            counts = {"prompt_tokens": PROMPT, "last_seq": written[job.pk] + 1}
            match operation:
                case "write" if job.state == State.RUNNING:
                    written[job.pk] += number
                case "finish" | "fail" | "stop":
                    state = {"finish": State.FINISHED, "fail": State.FAILED, "stop": State.CANCELLED}[operation]
                    if queue.end(job.pk, epoch, state, completion_tokens=written[job.pk], **counts):
                        prompts[job.pk] = PROMPT
                case "drain":
                    if queue.put_back(job.pk, epoch, drained=True, **counts):
                        prompts[job.pk] = PROMPT
                case "lose":
                    queue.put_back(job.pk, epoch, drained=False, last_seq=written[job.pk] + 1)
                case "cancel":
                    queue.cancel(job)
                case "requeue":
                    if queue.requeue(job):
                        written[job.pk] = prompts[job.pk] = 0
                case "give up":
                    queue.fail_waiting("gpu", "mock", timezone.now(), "model_unavailable", lambda user: "gone", "")
                case "delete" if job.is_final:
                    states.pop(job.pk)
                    job.delete()
        for job in Job.objects.select_related("user"):
            if job.is_final and states.get(job.pk) not in Job.FINAL:
                expected[job.user.get_username()] += prompts[job.pk] + written[job.pk]
            states[job.pk] = job.state
    assert used() == {name: tokens for name, tokens in expected.items() if tokens}


def write_four(start: Callable[[], Worker], job: Job, marker: dict[str, Any] | None = None) -> None:
    """Four tokens, and the marker, by a worker that then is heard of no more."""
    worker = start()
    output = worker.open(job)
    worker.write(output, 1, 4)
    if marker is not None:
        worker.writer.end(output, marker)
    worker.writer.release(output)
    assert output.flushed.wait(PATIENCE_SECONDS)


def run_again(start: Callable[[], Worker], job: Job) -> None:
    """The next claim, by a worker that really runs it."""
    running.run(Claim(claimed_again(job)), load_engine(ModelSpec("mock", "mock:"), slots=1), start().writer)
    job.refresh_from_db()


@pytest.mark.django_db(transaction=True)
def test_it_charges_what_a_dead_worker_wrote_of_a_cancelled_job() -> None:
    job = running_job(cancel_requested_at=timezone.now())
    with started_workers() as start:
        write_four(start, job)
        assert reaper.bring_back(job)
    assert used() == {"ada": 4}


@pytest.mark.django_db(transaction=True)
def test_it_charges_what_was_written_of_a_job_that_is_given_up() -> None:
    job = running_job(completion_tokens=4)
    with started_workers() as start:
        write_four(start, job)
        job.attempt = queue.MAX_ATTEMPTS
        run_again(start, job)
    assert (job.state, job.error_code, job.completion_tokens) == (State.FAILED, "worker_lost", 4)
    assert used() == {"ada": 4}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["cancelled", "failed"])
def test_it_charges_what_was_written_when_only_the_marker_tells_of_the_end(kind: str) -> None:
    """An end that the database lost with its last second was charged in the same second."""
    job = running_job()
    with started_workers() as start:
        write_four(start, job, {"type": kind, "seq": 5, "code": "deadline", "message": "It took too long."})
        run_again(start, job)
    assert (job.state, job.completion_tokens) == (kind, 4)
    assert used() == {"ada": 4}


@pytest.mark.django_db(transaction=True)
def test_it_takes_no_end_marker_for_a_token() -> None:
    job = running_job(cancel_requested_at=timezone.now())
    with started_workers() as start:
        write_four(start, job, {"type": "cancelled", "seq": 5})
    assert reaper.bring_back(job)
    job.refresh_from_db()
    assert (job.last_seq, job.completion_tokens) == (5, 4)
    assert used() == {"ada": 4}
