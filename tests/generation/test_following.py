"""What a reader of a job gets: each token once and in order, whenever it comes and whatever it missed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from generation.delivery import follow, stream
from generation.delivery.hub import hub
from generation.delivery.reader import ENDS, WINDOW, Frame, JobReader
from generation.models import Job
from tests.generation.rows import make_job
from tests.generation.token_writers import (
    PATIENCE_SECONDS,
    Worker,
    claimed_again,
    numbers,
    started_workers,
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


async def followed(job: Job, after: int = 0) -> list[Frame]:
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(job, after)) as frames:
        return [frame async for frame in frames]


def kinds(frames: list[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def seqs(frames: list[Frame]) -> list[int]:
    return [frame["seq"] for frame in frames if frame["type"] == "token"]


def text_of(frames: list[Frame]) -> str:
    text = ""
    for frame in frames:
        if frame["type"] == "snapshot":
            text = frame["text"]
        elif frame["type"] == "token":
            text += frame["text"]
    return text


def test_a_burst_reaches_a_reader_that_read_nothing_meanwhile(worker: Worker, job: Job) -> None:
    """django/channels_redis#131: beyond a channel's capacity messages were dropped without a word."""

    async def read() -> list[Frame]:
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(job)) as frames:
            output = worker.open(job)
            seen = [await anext(frames)]
            await asyncio.to_thread(worker.write, output, 1, 2000)
            await asyncio.to_thread(worker.finish, output)
            seen += [frame async for frame in frames]
        return seen

    frames = asyncio.run(read())
    assert kinds(frames) == ["started", *["token"] * 2000, "finished"]
    assert seqs(frames) == list(range(1, 2001))
    assert text_of(frames) == numbers(1, 2000) == Job.objects.get(pk=job.pk).text
    assert frames[-1]["seq"] == 2001


@pytest.mark.parametrize("head_start", [0, 1, 40])
def test_a_reader_that_comes_late_begins_at_the_first_character(worker: Worker, job: Job, head_start: int) -> None:
    """django/channels#1244: what was sent before the consumer had joined the group was missing."""
    output = worker.open(job)
    worker.write(output, 1, head_start)

    async def read() -> list[Frame]:
        writing = asyncio.create_task(asyncio.to_thread(worker.write, output, head_start + 1, 400))
        reading = asyncio.create_task(followed(job))
        await writing
        await asyncio.to_thread(worker.finish, output)
        return await reading

    frames = asyncio.run(read())
    assert seqs(frames) == list(range(1, 401))
    assert text_of(frames) == numbers(1, 400)


def test_a_reader_that_hears_no_message_reads_the_stream(worker: Worker, job: Job) -> None:
    """Messages may be lost; the once-a-second look at row and stream finds everything."""
    output = worker.open(job)
    sent: list[Frame] = []

    async def read() -> None:
        ended = asyncio.Event()

        async def send(frame: Frame) -> None:
            sent.append(frame)
            if frame["type"] in ENDS:
                ended.set()

        reader = JobReader(job.pk, send)  # never joined to the job's group
        await reader.start()
        hub().add(reader)
        await asyncio.to_thread(worker.write, output, 1, 30)
        await asyncio.to_thread(worker.finish, output)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
        hub().remove(reader)

    asyncio.run(read())
    assert kinds(sent) == ["started", *["token"] * 30, "finished"]


def test_a_reader_that_fails_keeps_nothing_from_the_others(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    sent: list[Frame] = []

    async def read() -> None:
        ended = asyncio.Event()

        async def fail(frame: Frame) -> None:
            raise ConnectionError("broken")

        async def send(frame: Frame) -> None:
            sent.append(frame)
            if frame["type"] in ENDS:
                ended.set()

        readers = [JobReader(job.pk, fail), JobReader(job.pk, send), JobReader(job.pk, fail)]
        for reader in readers:
            hub().add(reader)
        await asyncio.to_thread(worker.write, output, 1, 5)
        await asyncio.to_thread(worker.finish, output)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
        for reader in readers:
            hub().remove(reader)

    asyncio.run(read())
    assert text_of(sent) == numbers(1, 5)


@pytest.mark.parametrize("after", [0, 1, 19, 20])
def test_it_goes_on_after_what_was_seen(worker: Worker, job: Job, after: int) -> None:
    output = worker.open(job)
    worker.write(output, 1, 20)
    worker.finish(output)
    frames = asyncio.run(followed(job, after))
    assert seqs(frames) == list(range(after + 1, 21))
    assert kinds(frames)[0] == "started"
    assert kinds(frames)[-1] == "finished"


def read_with(job: Job, act: Callable[[JobReader], Any] | None = None, **options: Any) -> list[Frame]:
    """The frames of a reader that only starts, and then does what `act` says."""
    sent: list[Frame] = []

    async def read() -> None:
        async def send(frame: Frame) -> None:
            sent.append(frame)

        reader = JobReader(job.pk, send, **options)
        await reader.start()
        if act:
            await act(reader)

    asyncio.run(read())
    return sent


def test_a_reader_of_another_origin_gets_a_snapshot(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    worker.write(output, 1, 20)
    worker.finish(output)
    frames = read_with(job, after=7, origin=5)
    assert kinds(frames) == ["started", "snapshot", "finished"]
    assert (frames[0]["origin"], frames[1]["seq"], frames[1]["origin"]) == (1, 20, 1)
    assert frames[1]["text"] == numbers(1, 20)


def test_a_reader_that_does_not_acknowledge_gets_a_window_and_then_the_rest(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    worker.write(output, 1, 600)
    worker.finish(output)
    assert seqs(read_with(job)) == list(range(1, WINDOW + 1))

    async def acknowledge(reader: JobReader) -> None:
        for seq in (64, 0, 64, 10_000, 300, 556):
            await reader.acknowledge(seq)

    frames = read_with(job, acknowledge)
    assert seqs(frames) == list(range(1, 601))
    assert kinds(frames)[-1] == "finished"


def test_a_stream_that_began_anew_replaces_what_was_shown(start_worker: Callable[[], Worker], job: Job) -> None:
    first, second = start_worker(), start_worker()
    output = first.open(job)

    async def read() -> list[Frame]:
        seen: list[Frame] = []
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(job)) as frames:
            await asyncio.to_thread(first.write, output, 1, 5)
            while seqs(seen) != [1, 2, 3, 4, 5]:
                seen.append(await anext(frames))
            stream.sync_client().flushall()
            again = await asyncio.to_thread(claimed_again, job)
            fresh = await asyncio.to_thread(second.open, again)
            assert (fresh.origin, fresh.entries) == (2, [])
            await asyncio.to_thread(second.write, fresh, 1, 8)
            await asyncio.to_thread(second.finish, fresh)
            seen += [frame async for frame in frames]
        return seen

    frames = asyncio.run(read())
    later = frames[6:]
    # Before anything of a new claim comes its `started`; what was shown is replaced, then it goes on without a gap.
    assert kinds(later)[:2] == ["started", "snapshot"]
    assert later[1]["origin"] == 2
    assert seqs(later) == list(range(later[1]["seq"] + 1, 9))
    assert text_of(frames) == numbers(1, 8)
    assert kinds(frames)[-1] == "finished"


def test_a_successor_continues_without_a_gap_or_a_double(start_worker: Callable[[], Worker], job: Job) -> None:
    first, second = start_worker(), start_worker()
    output = first.open(job)

    async def read() -> list[Frame]:
        seen: list[Frame] = []
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(job)) as frames:
            await asyncio.to_thread(first.write, output, 1, 50)
            while len(seqs(seen)) < 50:
                seen.append(await anext(frames))
            again = await asyncio.to_thread(claimed_again, job)
            successor = await asyncio.to_thread(second.open, again)
            await asyncio.to_thread(first.write, output, 51, 60)
            await asyncio.to_thread(second.write, successor, 51, 80)
            await asyncio.to_thread(second.finish, successor)
            return [*seen, *[frame async for frame in frames]]

    frames = asyncio.run(read())
    assert seqs(frames) == list(range(1, 81))
    assert [index for index, kind in enumerate(kinds(frames)) if kind == "started"] == [0, 51]
    assert text_of(frames) == numbers(1, 80)


def test_a_final_row_whose_stream_is_gone_is_shown_at_once(job: Job) -> None:
    fields = {"text": "all of it", "origin": 1, "last_seq": 4, "finish_reason": "stop"}
    Job.objects.filter(pk=job.pk).update(state=Job.State.FINISHED, **fields)
    for after in (0, 2):
        frames = read_with(job, after=after)
        assert kinds(frames) == ["started", "snapshot", "finished"]
        assert (frames[1]["text"], frames[1]["seq"], frames[2]["seq"]) == ("all of it", 3, 4)
    assert kinds(read_with(job, after=3, origin=1)) == ["started", "finished"]


def test_a_final_row_whose_stream_lacks_the_end_is_shown_after_a_while(worker: Worker, job: Job) -> None:
    output = worker.open(job)
    worker.write(output, 1, 3)
    wait_for_entry(job, 3)
    fields = {"text": numbers(1, 9), "origin": 1, "last_seq": 10, "finish_reason": "stop"}
    Job.objects.filter(pk=job.pk).update(state=Job.State.FINISHED, **fields)
    frames = asyncio.run(followed(job))
    assert kinds(frames) == ["started", *["token"] * 3, "snapshot", "finished"]
    assert text_of(frames) == numbers(1, 9)


@pytest.mark.parametrize("state", [Job.State.CANCELLED, Job.State.EXPIRED])
def test_a_job_that_never_started_ends_in_line(state: Job.State) -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(state=state)
    frames = read_with(job)
    assert kinds(frames) == ["queued", state]
    assert frames[1].get("seq", 0) == 0
