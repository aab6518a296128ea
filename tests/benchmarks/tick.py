"""What a long line costs a web process each second, when nothing moves in it and when everybody does."""

import asyncio
import json
import time
import uuid

from chatsite.chat.models import Conversation
from generation import queue
from generation.models import Job, Worker
from tests.benchmarks import rows
from tests.benchmarks.figures import Figure
from tests.benchmarks.stand import Process, Stand
from tests.benchmarks.wire import Wire, connect

NUM_WAITING, NUM_SOCKETS = 10_000, 1_000
SECONDS = 20.0


def measure(
    site: Stand, *, waiting: int = NUM_WAITING, sockets: int = NUM_SOCKETS, seconds: float = SECONDS
) -> list[Figure]:
    worker = rows.worker(["mock"])
    # The first in line have nobody who watches: those are claimed, and everyone behind moves.
    rows.jobs(rows.people(sockets), waiting - sockets, models=["mock"])
    users = rows.people(sockets)
    jobs = rows.jobs(users, sockets, models=["mock"])
    places = list(zip(jobs, rows.conversations(jobs), rows.cookies(users), strict=True))
    return asyncio.run(_measure(site.start_web(), places, worker, seconds))


async def _measure(
    web: Process, places: list[tuple[Job, Conversation, str]], worker: Worker, seconds: float
) -> list[Figure]:
    num_told = 0

    def take(wire: Wire, text: bytes, at: int) -> None:
        nonlocal num_told
        num_told += json.loads(text)["type"] == "queued"

    wires = []
    for job, room, cookie in places:
        wire = await connect(web.port, f"/ws/chat/{room.pk}/", cookie, take)
        wire.send(json.dumps({"type": "follow", "job": str(job.pk)}))
        wires.append(wire)
    while num_told < len(wires):
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)

    began, cpu_before = time.monotonic(), web.cpu_seconds
    await asyncio.sleep(seconds)
    share = (web.cpu_seconds - cpu_before) / (time.monotonic() - began)
    still = share / (1 - share)  # a tick begins a second after the last one ended

    moving = asyncio.create_task(_move(worker))
    await asyncio.sleep(3)
    cpu_before, told_before = web.cpu_seconds, num_told
    await asyncio.sleep(seconds)
    num_ticks = (num_told - told_before) / len(wires)
    moved = (web.cpu_seconds - cpu_before) / num_ticks
    moving.cancel()
    for wire in wires:
        wire.close()
    name = f"{len(wires):,} sockets wait in a line"
    return [
        Figure(f"{name} that stands still, CPU time a tick", still, "s", 0.3),
        Figure(f"{name} that moves, CPU time a tick", moved, "s", 0.3),
    ]


async def _move(worker: Worker) -> None:
    """A claim twice a second, by a worker of another machine."""
    while True:
        await asyncio.to_thread(queue.claim, "gpu", ["mock"], worker, str(uuid.uuid4()))
        await asyncio.sleep(0.5)
