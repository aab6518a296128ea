"""GPU workers as real processes: what they refuse, how many jobs they run, and what survives their end."""

import signal
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from generation import queue
from generation.delivery import stream
from generation.models import Job, TokenUse, Worker
from tests.generation.asking import ask
from tests.generation.rows import make_job
from tests.generation.workers import CeleryWorker, celery_workers, has_ended, num_written, wait_until
from tests.mock_words import repeated

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("one_model", "no_limits", "no_wakes")]

State = Job.State
Start = Callable[..., CeleryWorker]


@pytest.fixture
def start(transactional_db: None) -> Iterator[Start]:
    """Start a ready worker: `start(name, concurrency, **environ)`."""
    with celery_workers() as start_one:
        yield lambda name, concurrency=2, **environ: start_one(name, "-c", str(concurrency), **environ)


def check_reply(job: Job, text: str, words: int) -> None:
    """Finished with exactly these words, each of them one entry of one stream, each id once."""
    job.refresh_from_db()
    assert (job.state, job.finish_reason, job.text) == (State.FINISHED, "length", repeated(text, words))
    wait_until(lambda: num_written(job) == words + 1)
    entries = stream.read_entries(stream.sync_client(), job.pk)
    assert [entry.ids for entry in entries[:-1]] == [(number,) for number in range(words)]
    assert "".join(entry.text for entry in entries) == job.text
    assert job.last_seq == entries[-1].seq == words + 1
    assert entries[-1].end is not None and entries[-1].end["type"] == "finished"


def test_it_refuses_forked_processes_and_names_what_it_needs() -> None:
    """Celery forks by default, and a model on a GPU doesn't survive that (apecloud/ApeRAG#331)."""
    worker = CeleryWorker("forks@test", "-c", "2")
    assert worker.wait() != 0
    assert "-P threads" in worker.log.text
    assert " ready." not in worker.log.text


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ("mock=mock:?slots=1", "slots=1"),
        ("gone=/nowhere/at/all/model.gguf", "/nowhere/at/all/model.gguf"),
    ],
)
def test_it_ends_when_no_model_can_be_loaded_and_says_why(models: str, reason: str) -> None:
    """Celery swallows what is raised while a worker starts, and says that it is ready."""
    worker = CeleryWorker("broken@test", "-P", "threads", "-c", "2", GENERATION_MODELS=models)
    assert worker.wait() != 0
    assert "could not be loaded" in worker.log.text and reason in worker.log.text
    assert " ready." not in worker.log.text
    entry = Worker.objects.get().models[0]
    assert entry["state"] == "failed"
    assert reason in entry["error"]


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_it_runs_exactly_as_many_jobs_at_once_as_the_workers_concurrency(start: Start, names: list[str]) -> None:
    queue.pause("gpu")
    jobs = [ask(f"person{number}", params={"max_new_tokens": 8}) for number in range(10)]
    for name in names:
        start(name, 2)
    queue.resume("gpu")
    running: list[int] = []

    def all_ended() -> bool:
        running.append(Job.objects.filter(state=State.RUNNING).count())
        return not Job.objects.exclude(state=State.FINISHED).exists()

    wait_until(all_ended)
    assert max(running) == 2 * len(names)
    for job in jobs:
        check_reply(job, "one two three", 8)
    assert Job.objects.values("worker").distinct().count() == len(names)


def test_it_hands_a_running_job_on_when_it_is_told_to_stop(start: Start) -> None:
    first = start("first", 1)
    job = ask(text="one two three four five", params={"max_new_tokens": 40})
    wait_until(lambda: num_written(job) >= 5)
    assert first.end(signal.SIGTERM) == 0
    job.refresh_from_db()
    assert (job.state, job.worker, job.attempt, job.prompt_tokens) == (State.QUEUED, None, 0, 5)
    assert num_written(job) == len(job.text.split())
    assert stream.sync_client().hgetall(stream.owner_key(job.pk)) == {b"epoch": b"1", b"origin": b"1"}
    assert len(job.text.split()) >= 5 and repeated("one two three four five", 40).startswith(job.text)
    assert Worker.objects.get().stopped_at is not None
    start("second", 1)
    wait_until(lambda: has_ended(job))
    check_reply(job, "one two three four five", 40)
    assert (job.epoch, job.attempt, job.origin) == (2, 1, 1)
    assert TokenUse.objects.get().tokens == 5 + 40


def test_it_goes_on_from_the_next_token_after_a_worker_was_killed(start: Start) -> None:
    """A killed worker's job stayed `running` for ever, or began anew (ui-insight/vandalizer#825)."""
    first = start("first", 2)
    jobs = [ask(name, text=f"{name} says this", params={"max_new_tokens": 60}) for name in ("ada", "bob")]
    wait_until(lambda: all(num_written(job) >= 5 for job in jobs))
    first.end(signal.SIGKILL)
    start("second", 2)
    for job, name in zip(jobs, ("ada", "bob"), strict=True):
        wait_until(lambda job=job: has_ended(job))
        check_reply(job, f"{name} says this", 60)
        assert (job.epoch, job.origin) == (2, 1)
        assert TokenUse.objects.get(user=job.user).tokens == 3 + 60


def test_it_gives_each_of_many_people_only_their_own_words(start: Start) -> None:
    """In a second batch on the same server, people were given other people's answers (ggml-org/llama.cpp#6681)."""
    start("one", 4, GENERATION_MODELS="mock=mock:?rate=100")
    start("two", 4, GENERATION_MODELS="mock=mock:?rate=100")
    for _ in range(2):
        asked = []
        for number in range(16):
            text = " ".join(uuid.uuid4().hex for _ in range(number % 3 + 1))
            asked.append((ask(f"person{number}", text=text, params={"max_new_tokens": 10 + number}), text, 10 + number))
        for job, text, words in asked:
            wait_until(lambda job=job: has_ended(job))
            check_reply(job, text, words)


def test_it_stops_a_running_job_and_keeps_what_was_said(start: Start) -> None:
    start("one", 1)
    job, behind = ask(params={"max_new_tokens": 1000}), ask("bob", params={"max_new_tokens": 3})
    wait_until(lambda: num_written(job) >= 3)
    assert not queue.cancel(job)
    wait_until(lambda: has_ended(job))
    assert job.state == State.CANCELLED
    assert job.text == repeated("one two three", len(job.text.split())) != ""
    wait_until(lambda: has_ended(behind))
    check_reply(behind, "one two three", 3)


def test_it_starts_nothing_more_while_it_drains_and_asks_for_no_wakes(start: Start) -> None:
    worker = start("one", 2)
    row = Worker.objects.get()

    def wait_for_ticks(number: int) -> None:
        ticks = set()

        def have_passed() -> bool:
            row.refresh_from_db()
            ticks.add(row.last_seen_at)
            return len(ticks) > number

        wait_until(have_passed)

    queue.drain(row)
    wait_for_ticks(2)  # the tick that the drain came into still wakes
    job = ask()
    wait_for_ticks(5)
    job.refresh_from_db()
    assert job.state == State.QUEUED
    assert worker.log.text.count("received") <= 1


def test_it_finds_jobs_whose_wakes_were_lost(start: Start) -> None:
    queue.pause("gpu")
    jobs = [ask(f"person{number}", params={"max_new_tokens": 3}) for number in range(5)]
    start("one", 2)
    stream.sync_client().delete("gpu")
    queue.Queue.objects.update(paused=False)
    for job in jobs:
        wait_until(lambda job=job: has_ended(job))


def test_it_runs_again_what_its_row_says_it_runs_and_it_does_not(start: Start) -> None:
    """The database was lost between a claim's commit and its answer: the worker lives, and nobody runs the job."""
    start("one", 1)
    lost = make_job(
        State.RUNNING,
        worker=Worker.objects.get(),
        attempt=1,
        started_at=timezone.now() - timedelta(minutes=1),
        params={"max_new_tokens": 3},
    )
    wait_until(lambda: has_ended(lost))
    check_reply(lost, "one two three", 3)
    assert lost.epoch == 2


def test_it_runs_jobs_of_a_host_whose_ceiling_is_higher(start: Start) -> None:
    job = ask(params={"max_new_tokens": 50, "min_new_tokens": 40})
    start("one", 1, GENERATION_MAX_NEW_TOKENS="10")
    wait_until(lambda: has_ended(job))
    check_reply(job, "one two three", 10)


def test_it_fails_a_prompt_that_does_not_fit_with_the_figures_and_goes_on(start: Start) -> None:
    start("one", 1, GENERATION_MODELS="mock=mock:?rate=50&context=20")
    long, short = ask(text="word " * 30), ask("bob", params={"max_new_tokens": 3})
    wait_until(lambda: has_ended(long) and has_ended(short))
    assert (long.state, long.error_code) == (State.FAILED, "prompt_too_long")
    assert "30 tokens" in long.error_message and "takes 19" in long.error_message
    check_reply(short, "one two three", 3)
