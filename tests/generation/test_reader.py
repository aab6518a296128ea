"""What a reader says of the line and of the start, whichever of them it hears of first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from generation.delivery.reader import Frame, JobReader
from generation.delivery.rows import Place
from generation.models import Job
from tests.generation.rows import make_job, make_worker
from tests.generation.token_writers import claimed_again

pytestmark = pytest.mark.django_db(transaction=True)


def said(job: Job, happen: Callable[[JobReader], Awaitable[None]], **options: Any) -> list[str]:
    """The types of the frames that a reader of the job sends while that happens."""
    kinds: list[str] = []

    async def read() -> None:
        async def send(frame: Frame) -> None:
            kinds.append(frame["type"])

        await happen(JobReader(job.pk, send, **options))

    asyncio.run(read())
    return kinds


def token(job: Job, seq: int) -> dict[str, Any]:
    return {"type": "job.token", "job": str(job.pk), "seq": seq, "text": "one", "origin": 1, "epoch": 1}


def test_it_says_no_place_in_line_once_tokens_came() -> None:
    """A reply whose first token was heard of before its start was shown as waiting for the rest of its time."""
    job = make_job(epoch=0)

    def start() -> None:
        Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, worker=make_worker())
        claimed_again(job)

    async def happen(reader: JobReader) -> None:
        await reader.start()
        await asyncio.to_thread(start)
        await reader.message(token(job, 1))
        await reader.place(Place(1, 1))

    assert said(job, happen) == ["queued", "started", "token"]


def test_it_says_queued_to_who_asked_before_anything_else() -> None:
    """Tokens came before it when the database was away at the wrong moment: a page that didn't know the job yet
    dropped them, and showed an empty reply.
    """
    job = make_job(Job.State.RUNNING, worker=make_worker())
    Job.objects.filter(pk=job.pk).delete()

    async def happen(reader: JobReader) -> None:
        await reader.start()
        await asyncio.to_thread(lambda: job.save(force_insert=True))
        await reader.message(token(job, 1))

    assert said(job, happen, announce_queued=True) == ["queued", "started", "token"]


def test_it_says_queued_first_though_the_start_was_heard_of_before() -> None:
    """A page that asked got `started` before `queued`, and showed a growing reply as waiting in line."""
    job = make_job(Job.State.RUNNING, worker=make_worker())

    async def happen(reader: JobReader) -> None:
        await reader.message({"type": "job.changed", "job": str(job.pk)})
        await reader.start()

    assert said(job, happen, announce_queued=True) == ["queued", "started"]


def test_it_says_queued_and_started_again_to_who_asked_twice() -> None:
    """A prompt that a page sent twice was answered with `queued` while its text grew, and seemed to wait."""
    job = make_job(Job.State.RUNNING, worker=make_worker())

    async def happen(reader: JobReader) -> None:
        await reader.start()
        await reader.message(token(job, 1))
        await reader.restate()
        await reader.message(token(job, 2))

    frames = said(job, happen, announce_queued=True)
    assert frames == ["queued", "started", "token", "queued", "started", "token"]
