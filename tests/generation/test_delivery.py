"""What a worker's writer puts into Redis: numbered once, fenced by epochs, whole after every loss."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from channels.layers import get_channel_layer

from generation.delivery import stream
from generation.models import Job
from tests.generation.rows import make_job
from tests.generation.token_writers import (
    PATIENCE_SECONDS,
    Worker,
    claimed_again,
    expected,
    numbers,
    started_workers,
    stored,
    wait_for_entry,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def start_worker() -> Iterator[Callable[[], Worker]]:
    with started_workers() as start:
        yield start


@pytest.fixture
def worker(start_worker: Callable[[], Worker]) -> Worker:
    return start_worker()


@pytest.fixture
def job() -> Job:
    return make_job(Job.State.RUNNING)


def test_it_publishes_what_the_channel_layer_reads(worker: Worker, job: Job) -> None:
    async def received() -> list[dict[str, Any]]:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(stream.group(job.pk), channel)
        output = worker.open(job)
        worker.writer.put(job.pk, job.epoch, (5, 6), "é☃")
        worker.writer.put(job.pk, job.epoch, (7,), "")
        worker.writer.end(output, {"type": "cancelled", "seq": 3})
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await layer.receive(channel) for _ in range(3)]

    common = {"type": "job.token", "job": str(job.pk), "origin": 1, "epoch": 1}
    assert asyncio.run(received()) == [
        {**common, "seq": 1, "text": "é☃"},
        {**common, "seq": 2, "text": ""},
        {**common, "seq": 3, "text": "", "end": {"type": "cancelled", "seq": 3}},
    ]


def test_it_numbers_entries_without_a_gap_and_lets_keys_expire(worker: Worker, job: Job) -> None:
    client = stream.sync_client()
    output = worker.open(job)
    keys = (stream.tokens_key(job.pk), stream.owner_key(job.pk))
    assert client.ttl(keys[1]) > stream.ENDED_TTL_SECONDS
    worker.write(output, 1, 200)
    wait_for_entry(job, 200)
    assert stored(job) == expected(200)
    assert all(client.ttl(key) > stream.ENDED_TTL_SECONDS for key in keys)
    worker.finish(output)
    assert all(0 < client.ttl(key) <= stream.ENDED_TTL_SECONDS for key in keys)
    assert len(stored(job)) == 200


def test_nothing_follows_the_end(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    worker.write(output, 1, 3)
    worker.finish(output)
    again = worker.open(claimed_again(job))
    assert again.marker is not None
    worker.write(again, 4, 5)
    worker.writer.release(again)
    assert again.flushed.wait(PATIENCE_SECONDS)
    assert stored(job) == expected(3)


def test_a_call_whose_answer_was_lost_is_not_doubled(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    worker.write(output, 1, 5)
    wait_for_entry(job, 5)
    # As if Redis had done it and its answer had been lost: the writer sends all of it again.
    output.written = 0
    worker.write(output, 6, 7)
    worker.finish(output)
    assert stored(job) == expected(7)


def test_an_older_claim_writes_nothing(start_worker: Callable[[], Worker], job: Job) -> None:
    old, new = start_worker(), start_worker()
    output = old.open(job)
    old.write(output, 1, 3)
    wait_for_entry(job, 3)
    successor = new.open(claimed_again(job))
    assert (successor.ids, successor.text, successor.origin) == ([1, 2, 3], numbers(1, 3), 1)
    old.write(output, 4, 6)
    assert old.heard.wait(PATIENCE_SECONDS)
    assert old.lost == [(job.pk, 1)]
    assert stored(job) == expected(3)
    assert old.writer.open(job.pk, 1) is None
    new.write(successor, 4, 5)
    new.finish(successor)
    assert stored(job) == expected(5)
    assert new.lost == []


def test_an_older_claim_writes_nothing_into_an_emptied_redis(start_worker: Callable[[], Worker], job: Job) -> None:
    old = start_worker()
    output = old.open(job)
    old.write(output, 1, 3)
    wait_for_entry(job, 3)
    claimed_again(job)
    stream.sync_client().flushall()
    old.write(output, 4, 6)
    assert old.heard.wait(PATIENCE_SECONDS)
    assert stored(job) == []


def test_an_emptied_redis_gets_the_whole_reply_again(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    worker.write(output, 1, 50)
    wait_for_entry(job, 50)
    stream.sync_client().flushall()
    worker.write(output, 51, 60)
    worker.finish(output)
    assert stored(job) == expected(60)
    assert output.origin == 1
    assert stream.sync_client().hget(stream.owner_key(job.pk), "origin") == b"1"
    assert stream.sync_client().ttl(stream.tokens_key(job.pk)) > 0
    assert worker.lost == []


def test_a_requeued_job_begins_a_new_stream(start_worker: Callable[[], Worker], job: Job) -> None:
    first, second = start_worker(), start_worker()
    output = first.open(job)
    first.write(output, 1, 3)
    wait_for_entry(job, 3)
    Job.objects.filter(pk=job.pk).update(discarded_origin=1)
    fresh = second.open(claimed_again(job))
    assert (fresh.entries, fresh.origin) == ([], 2)


def test_it_opens_no_connection_per_token_or_job(worker: Worker) -> None:
    """django/channels_redis#125: connections to Redis grew with every message sent from a thread."""
    client = stream.sync_client()
    jobs = [make_job(Job.State.RUNNING, place=place) for place in range(16)]
    worker.finish(worker.open(make_job(Job.State.RUNNING, place=99)))
    before = len(client.client_list())

    def run(own: list[Job]) -> None:
        for each in own:
            worker.write(worker.open(each), 1, 500)

    threads = [threading.Thread(target=run, args=(jobs[2 * number : 2 * number + 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in jobs:
        wait_for_entry(each, 500)
        assert stored(each) == expected(500)
    # `open` is called from each task's thread, so up to one pooled connection for each of those.
    assert len(client.client_list()) <= before + len(threads)
