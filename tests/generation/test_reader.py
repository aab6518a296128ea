"""What a reader says of the line and of the start, whichever of them it hears of first."""

import asyncio

import pytest

from generation.delivery.reader import Frame, JobReader
from generation.delivery.rows import Place
from generation.models import Job
from tests.generation.rows import make_job, make_worker
from tests.generation.token_writers import claimed_again

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_says_no_place_in_line_once_tokens_came() -> None:
    """A reply whose first token was heard of before its start was shown as waiting for the rest of its time."""
    job = make_job(epoch=0)
    frames: list[Frame] = []

    async def read() -> None:
        async def send(frame: Frame) -> None:
            frames.append(frame)

        reader = JobReader(job.pk, send)
        await reader.start()
        await asyncio.to_thread(start)
        token = {"type": "job.token", "job": str(job.pk), "seq": 1, "text": "one", "origin": 1, "epoch": 1}
        await reader.message(token)
        await reader.place(Place(1, 1))

    def start() -> None:
        Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, worker=make_worker())
        claimed_again(job)

    asyncio.run(read())
    assert [frame["type"] for frame in frames] == ["queued", "started", "token"]


def test_it_says_queued_to_who_asked_before_anything_else() -> None:
    """Tokens came before it when the database was away at the wrong moment: a page that didn't know the job yet
    dropped them, and showed an empty reply.
    """
    job = make_job(Job.State.RUNNING, worker=make_worker())
    Job.objects.filter(pk=job.pk).delete()
    frames: list[Frame] = []

    async def read() -> None:
        async def send(frame: Frame) -> None:
            frames.append(frame)

        reader = JobReader(job.pk, send, announce_queued=True)
        await reader.start()
        await asyncio.to_thread(lambda: job.save(force_insert=True))
        token = {"type": "job.token", "job": str(job.pk), "seq": 1, "text": "one", "origin": 1, "epoch": 1}
        await reader.message(token)

    asyncio.run(read())
    assert [frame["type"] for frame in frames] == ["queued", "started", "token"]


def test_it_says_queued_first_though_the_start_was_heard_of_before() -> None:
    """A page that asked got `started` before `queued`, and showed a growing reply as waiting in line."""
    job = make_job(Job.State.RUNNING, worker=make_worker())
    frames: list[Frame] = []

    async def read() -> None:
        async def send(frame: Frame) -> None:
            frames.append(frame)

        reader = JobReader(job.pk, send, announce_queued=True)
        await reader.message({"type": "job.changed", "job": str(job.pk)})
        await reader.start()

    asyncio.run(read())
    assert [frame["type"] for frame in frames] == ["queued", "started"]


def test_it_says_queued_and_started_again_to_who_asked_twice() -> None:
    """A prompt that a page sent twice was answered with `queued` while its text grew, and seemed to wait."""
    job = make_job(Job.State.RUNNING, worker=make_worker())
    frames: list[Frame] = []

    async def read() -> None:
        async def send(frame: Frame) -> None:
            frames.append(frame)

        reader = JobReader(job.pk, send, announce_queued=True)
        await reader.start()
        token = {"type": "job.token", "job": str(job.pk), "seq": 1, "text": "one", "origin": 1, "epoch": 1}
        await reader.message(token)
        await reader.restate()
        await reader.message({**token, "seq": 2, "text": " two"})

    asyncio.run(read())
    assert [frame["type"] for frame in frames] == ["queued", "started", "token", "queued", "started", "token"]
