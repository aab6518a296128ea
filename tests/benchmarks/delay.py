"""How long a token takes from the engine to a socket, at a number of running sequences of 50 tokens a second each.

A sequence's first tokens count too, and so does what this process takes to read. Only the stretch counts in which all
sequences run.
"""

import asyncio
import json
import uuid

from generation import queue
from tests.benchmarks import rows, stamps
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.stand import Process, Stand
from tests.benchmarks.wire import Wire, connect

NUM_TOKENS = {8: 600, 64: 600, 256: 1500}
"""By the number of sequences: so many begin over several seconds, and must all run for a while."""

TARGETS = {8: 5.0, 64: 20.0, 256: None}
ACK_EVERY = 64

Received = dict[str, list[int]]
"""Each job's instants of arrival in order."""


def measure(site: Stand) -> list[Figure]:
    web, worker = site.start_web(), site.start_worker(max(TARGETS))
    processes = {"web": web, "worker": worker, "Redis": site.redis}
    received, cpu = {}, {}
    for number in TARGETS:
        cookies = rows.cookies(rows.people(number))
        before = {name: process.cpu_seconds for name, process in processes.items()}
        received[number] = asyncio.run(_talk(web, cookies, NUM_TOKENS[number]))
        cpu[number] = {name: process.cpu_seconds - before[name] for name, process in processes.items()}
    worker.stop()  # writes its stamps
    sent = stamps.read(site.folder)
    figures = []
    for number, target in TARGETS.items():
        figures += _figures(number, target, received[number], sent)
        figures += [
            Figure(f"{number} sequences, {name}'s CPU time a token", seconds / number / NUM_TOKENS[number] * 1e6, "µs")
            for name, seconds in cpu[number].items()
        ]
    return figures


def _figures(number: int, target: float | None, received: Received, sent: dict[str, list[int]]) -> list[Figure]:
    first = max(sent[job][0] for job in received)
    last = min(sent[job][-1] for job in received)
    if first >= last:
        raise RuntimeError(f"the first of {number} sequences ended before the last began")
    delays = [
        (there - here) / 1e6
        for job, arrivals in received.items()
        for here, there in zip(sent[job], arrivals, strict=True)
        if first <= here <= last
    ]
    name = f"{number} sequences"
    return [
        Figure(f"{name}, tokens/s of the engine", len(delays) / (last - first) * 1e9, "1/s"),
        Figure(f"{name}, added delay p50", percentile(delays, 50), "ms"),
        Figure(f"{name}, added delay p99", percentile(delays, 99), "ms", target),
        Figure(f"{name}, added delay max", max(delays), "ms"),
    ]


async def _talk(web: Process, cookies: list[str], num_tokens: int) -> Received:
    """One prompt of each person, to the last token of all. They begin together, once all have been accepted."""
    received: Received = {}
    jobs: set[str] = set()
    unfinished = len(cookies)
    accepted, done = asyncio.Event(), asyncio.Event()

    def take(wire: Wire, text: bytes, at: int) -> None:
        nonlocal unfinished
        frame = json.loads(text)
        if frame["type"] == "token":
            received.setdefault(frame["job"], []).append(at)
            if frame["seq"] % ACK_EVERY == 0:
                wire.send(json.dumps({"type": "ack", "job": frame["job"], "seq": frame["seq"]}))
        elif frame["type"] == "queued":
            jobs.add(frame["job"])
            if len(jobs) == len(cookies):
                accepted.set()
        elif frame["type"] == "finished":
            unfinished -= 1
            if not unfinished:
                done.set()
        elif frame["type"] in ("error", "failed", "snapshot"):
            raise RuntimeError(f"not what was asked for: {frame}")

    await asyncio.to_thread(queue.pause, "gpu")
    wires = [await connect(web.port, "/ws/chat/new/", cookie, take) for cookie in cookies]
    params = {"max_new_tokens": num_tokens}
    for number, wire in enumerate(wires):
        text = f"prompt {number} of somebody who likes to read what was written before"
        wire.send(json.dumps({"type": "prompt", "id": str(uuid.uuid4()), "text": text, "params": params}))
    await accepted.wait()
    await asyncio.to_thread(queue.resume, "gpu")
    await done.wait()
    for wire in wires:
        wire.close()
    return received
