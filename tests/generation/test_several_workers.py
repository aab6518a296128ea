"""Several workers and several models: who runs what, on one host or in one queue."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chatsite.celery import app
from generation import overview, queue
from generation.delivery import stream
from generation.models import Job, Worker
from tests.generation.asking import ask
from tests.generation.workers import CeleryWorker, num_written, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_limits", "no_wakes")]

State = Job.State
Start = Callable[..., CeleryWorker]
MODELS = "mock=mock:?rate=40 left=mock:?queue=left&rate=40 right=mock:?queue=right&rate=40"


@pytest.fixture(autouse=True)
def three_models(settings: Any) -> None:
    settings.GENERATION_MODELS = MODELS
    stream.sync_client().delete("gpu", "left", "right")


@pytest.fixture
def start(transactional_db: None) -> Iterator[Start]:
    """Start workers without waiting: `start(name, *options, **environ)`."""
    workers: list[CeleryWorker] = []

    def start_one(name: str, *options: str, **environ: str) -> CeleryWorker:
        environ = {"GENERATION_MODELS": MODELS} | environ
        workers.append(CeleryWorker(f"{name}@test", "-P", "threads", *options, **environ))
        return workers[-1]

    yield start_one
    for worker in workers:
        worker.process.kill()
        worker.wait()
        print(worker.log.text)


def all_have_ended() -> bool:
    return not Job.objects.exclude(state__in=Job.FINAL).exists()


def num_run_by(name: str) -> int:
    return Job.objects.filter(worker__hostname=f"{name}@test", state=State.FINISHED).count()


def test_two_workers_share_a_queue_and_neither_hoards_what_waits(start: Start) -> None:
    """With Celery's prefetching one worker held the waiting jobs while another idled
    (celery/celery#6500, OasisLMF/OasisPlatform#436, opendatacube/datacube-core#325).
    """
    pair = [start("one", "-c", "1"), start("two", "-c", "1")]
    for worker in pair:
        worker.wait_until_ready()
    queue.pause("gpu")
    for number in range(12):
        ask(f"person{number}", params={"max_new_tokens": 12})
    told = queue.positions("gpu")
    assert len(told) == 12
    queue.resume("gpu")
    reserved: list[int] = []
    while not all_have_ended():
        held = app.control.inspect(timeout=5, limit=2).reserved() or {}
        reserved.extend(map(len, held.values()))
    assert reserved and max(reserved) <= 1
    shares = [num_run_by("one"), num_run_by("two")]
    assert sum(shares) == 12 and min(shares) >= 4, shares
    started = list(Job.objects.filter(pk__in=told).order_by("started_at").values_list("pk", flat=True))
    # Two that claim at one moment note it before either has the line's lock.
    assert all(abs(started.index(job) - place) <= 1 for place, job in enumerate(told))


def test_two_workers_on_one_host_are_two_rows_and_outlive_each_other(start: Start) -> None:
    """One for each device: same host and boot, another node name and process."""
    first, second = start("device0", "-c", "1"), start("device1", "-c", "1")
    first.wait_until_ready()
    second.wait_until_ready()
    rows = {row.hostname: row for row in overview.live_workers().filter(queue="gpu")}
    one, two = rows["device0@test"], rows["device1@test"]
    assert (one.host, one.boot_id, one.pid_namespace) == (two.host, two.boot_id, two.pid_namespace)
    assert (one.pid, two.pid) == (first.process.pid, second.process.pid)
    jobs = [ask(f"person{number}", params={"max_new_tokens": 60}) for number in range(2)]
    wait_until(lambda: all(num_written(job) >= 5 for job in jobs))
    kept, moved = Job.objects.get(worker=two), Job.objects.get(worker=one)
    first.end(signal.SIGKILL)
    wait_until(all_have_ended)
    assert {job.pk for job in Job.objects.filter(worker=two, state=State.FINISHED)} == {job.pk for job in jobs}
    kept.refresh_from_db()
    moved.refresh_from_db()
    assert (kept.epoch, moved.epoch) == (1, 2)
    # Its seconds are those of the second run, so it says how many tokens those are for.
    assert "tokens" not in kept.timings
    assert 0 < moved.timings["tokens"] <= moved.completion_tokens - 5
    assert Worker.objects.filter(hostname="device1@test", stopped_at=None).exists()


def test_a_queue_for_each_model_has_a_worker_of_its_own(start: Start) -> None:
    workers = [start("left", "-c", "2", "-Q", "left"), start("right", "-c", "2", "-Q", "right")]
    jobs = [ask(f"person{number}", model=model, params={"max_new_tokens": 5})
            for number in range(4) for model in ("left", "right")]  # fmt: skip
    alone = ask("other", params={"max_new_tokens": 5})
    for worker in workers:
        worker.wait_until_ready()
    wait_until(lambda: not Job.objects.filter(pk__in=[job.pk for job in jobs]).exclude(state=State.FINISHED).exists())
    ran = Counter(Job.objects.filter(state=State.FINISHED).values_list("model", "queue", "worker__hostname"))
    assert ran == {("left", "left", "left@test"): 4, ("right", "right", "right@test"): 4}
    assert [[each["name"] for each in row.models] for row in Worker.objects.order_by("queue")] == [["left"], ["right"]]
    # Nobody consumes its queue, so it waits, and in nobody's way.
    alone.refresh_from_db()
    assert alone.state == State.QUEUED


def test_two_models_in_one_worker_keep_their_speed_when_both_are_busy(start: Start, settings: Any) -> None:
    """Each of two busy models gets its share of the steps: neither waits until the other's replies have ended."""
    settings.GENERATION_MODELS = models = "mock=mock:?rate=25 other=mock:?rate=25"
    start("both", "-c", "4", GENERATION_MODELS=models).wait_until_ready()

    def speeds(*names: str) -> dict[str, float]:
        jobs = [ask(name, model=name, params={"max_new_tokens": 50}) for name in names for _ in range(2)]
        wait_until(all_have_ended)
        found: dict[str, float] = {}
        for job in jobs:
            job.refresh_from_db()
            seconds = job.timings["total"] - job.timings["first_token"]
            found[job.model] = found.get(job.model, 0.0) + (job.completion_tokens - 1) / seconds
        return found

    alone = speeds("mock") | speeds("other")
    together = speeds("mock", "other")
    print({name: f"{together[name] / alone[name]:.2f} of alone" for name in alone})
    assert all(together[name] >= 0.4 * alone[name] for name in alone)


def test_a_worker_leaves_jobs_of_models_it_has_not_to_those_who_have_them(start: Start, settings: Any) -> None:
    """The first in line, for a model that is nowhere up yet, holds up nobody behind it."""
    both = "mock=mock:?rate=40 rare=mock:?rate=40"
    settings.GENERATION_MODELS = both
    queue.pause("gpu")
    rare = [ask(f"rare{number}", model="rare", params={"max_new_tokens": 5}) for number in range(3)]
    plain = [ask(f"plain{number}", params={"max_new_tokens": 5}) for number in range(5)]
    start("plain", "-c", "1", GENERATION_MODELS="mock=mock:?rate=40").wait_until_ready()
    queue.resume("gpu")
    wait_until(lambda: num_run_by("plain") == len(plain))
    assert Job.objects.filter(state=State.QUEUED, model="rare").count() == len(rare)
    start("all", "-c", "1", GENERATION_MODELS=both).wait_until_ready()
    wait_until(all_have_ended)
    assert set(Job.objects.filter(model="rare").values_list("worker__hostname", "state")) == {("all@test", "finished")}
