"""How many token frames a second one web process sends, and two.

This process is both ends: as a worker's writer it puts new tokens as soon as the ones before have arrived at its
sockets, so that the web processes are never idle and nothing piles up. Where there are too few cores for two web
processes and for this one, the web processes share one core and everything else has the other. Two of them are then
no faster than one, and what tells how they would do on a core each is the CPU time that a frame takes.
"""

import asyncio
import json
import os
import time
from uuid import UUID

from django.conf import settings

from generation.delivery.writer import TokenWriter
from generation.models import Job
from tests.benchmarks import rows
from tests.benchmarks.figures import Figure
from tests.benchmarks.stand import Process, Stand
from tests.benchmarks.wire import Wire, connect

NUM_READERS = 64
IN_FLIGHT, STEP = 16, 8
ACK_EVERY = 64
WARM_UP_SECONDS, SECONDS = 3.0, 8.0
ROUNDS = 3


def measure(site: Stand, *, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[Figure]:
    webs = [site.start_web(), site.start_web()]
    if shares := (os.cpu_count() or 1) in (2, 3):
        for web in webs:
            web.stay_on({0})
        site.redis.stay_on({1})
        os.sched_setaffinity(0, {1})
    runs: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(rounds):
        for number, measured in runs.items():
            measured.append(_run(webs[:number], seconds))
    one, two = (max(measured) for measured in runs.values())
    both = "two web processes on one core" if shares else "two web processes"
    return [
        Figure("frames/s, one web process", one[0], "1/s", 4500, at_least=True),
        Figure(f"frames/s, {both}", two[0], "1/s"),
        Figure("frames/s, two / one", two[0] / one[0], "×", None if shares else 1.7, at_least=True),
        Figure("CPU time a frame, one web process", one[1] * 1e6, "µs"),
        Figure(f"CPU time a frame, {both}", two[1] * 1e6, "µs"),
        Figure(
            "frames/s with a core for each by that CPU time, two / one", 2 * one[1] / two[1], "×", 1.7, at_least=True
        ),
    ]


def _run(webs: list[Process], seconds: float) -> tuple[float, float]:
    """(frames a second, CPU seconds of the web processes for one)."""
    users = rows.people(NUM_READERS)
    jobs = rows.jobs(users, NUM_READERS, models=["mock"], runs_on=rows.worker(["mock"]))
    rooms = rows.conversations(jobs)
    writer = TokenWriter(settings.REDIS_URL, lambda job_id: 1, lambda job_id, epoch: None)
    writer.start()
    try:
        for job in jobs:
            assert writer.open(job.pk, 1) is not None
        readers = zip(jobs, rooms, rows.cookies(users), strict=True)
        places = [(webs[index % len(webs)], *reader) for index, reader in enumerate(readers)]

        def put(job_id: UUID, number: int) -> None:
            for each in range(number):
                writer.put(job_id, 1, (each,), " word")
            writer.wake()

        async def count() -> tuple[float, float]:
            num_frames = 0

            def take(wire: Wire, text: bytes, at: int) -> None:
                nonlocal num_frames
                frame = json.loads(text)
                if frame["type"] != "token":
                    return
                num_frames += 1
                if frame["seq"] % STEP == 0:
                    put(UUID(frame["job"]), STEP)
                if frame["seq"] % ACK_EVERY == 0:
                    wire.send(json.dumps({"type": "ack", "job": frame["job"], "seq": frame["seq"]}))

            wires = []
            for web, job, room, cookie in places:
                wire = await connect(web.port, f"/ws/chat/{room.pk}/", cookie, take)
                wire.send(json.dumps({"type": "follow", "job": str(job.pk)}))
                wires.append(wire)
            for job in jobs:
                put(job.pk, IN_FLIGHT)
            await asyncio.sleep(WARM_UP_SECONDS)
            began, frames_before, cpu_before = time.monotonic(), num_frames, sum(web.cpu_seconds for web in webs)
            await asyncio.sleep(seconds)
            cpu = sum(web.cpu_seconds for web in webs) - cpu_before
            sent, passed = num_frames - frames_before, time.monotonic() - began
            for wire in wires:
                wire.close()
            return sent / passed, cpu / sent

        return asyncio.run(count())
    finally:
        writer.close()
        Job.objects.filter(pk__in=[job.pk for job in jobs]).update(state=Job.State.CANCELLED)
