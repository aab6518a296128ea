"""A socket whose Redis doesn't answer at the wrong moment."""

import asyncio
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator

from generation.consumers import JobConsumer
from generation.delivery import stream
from generation.models import Job
from tests.generation.rows import make_job
from tests.generation.token_writers import PATIENCE_SECONDS, started_workers

pytestmark = pytest.mark.django_db(transaction=True)

ENDS = ("finished", "error")


def test_a_follow_that_redis_interrupts_goes_on_by_itself() -> None:
    """It was refused with `queue_unavailable` and followed all the same: who asked again got a part twice."""
    job = make_job(Job.State.RUNNING)
    # Any command on the stream now fails, as it does while Redis loads or is full.
    stream.sync_client().set(stream.tokens_key(job.pk), "no stream")

    async def follow() -> list[dict[str, Any]]:
        socket = WebsocketCommunicator(JobConsumer.as_asgi(), "/ws/")
        socket.scope["user"] = job.user
        assert (await socket.connect())[0]
        seen = [await socket.receive_json_from()]
        await socket.send_json_to({"type": "follow", "job": str(job.pk)})
        seen.append(await socket.receive_json_from())
        await asyncio.to_thread(_write, job)
        while seen[-1]["type"] not in ENDS:
            seen.append(await socket.receive_json_from(timeout=PATIENCE_SECONDS))
        await socket.disconnect()
        return seen

    frames = asyncio.run(follow())
    assert [frame["type"] for frame in frames] == ["hello", "started", "token", "token", "token", "finished"]
    assert "".join(frame["text"] for frame in frames if frame["type"] == "token") == "1 2 3 "


def _write(job: Job) -> None:
    stream.sync_client().delete(stream.tokens_key(job.pk))
    with started_workers() as start:
        worker = start()
        output = worker.open(job)
        worker.write(output, 1, 3)
        worker.finish(output)
