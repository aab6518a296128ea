"""What an open socket costs a web process while nothing happens: memory, and CPU time each second."""

import asyncio
import time

from tests.benchmarks import rows
from tests.benchmarks.figures import Figure
from tests.benchmarks.stand import Process, Stand
from tests.benchmarks.wire import Wire, connect

NUM_SOCKETS = 1000
NUM_AT_ONCE = 16
SECONDS = 20.0


def measure(site: Stand, *, number: int = NUM_SOCKETS, seconds: float = SECONDS) -> list[Figure]:
    return asyncio.run(_measure(site.start_web(), rows.cookies(rows.people(number)), seconds))


async def _measure(web: Process, cookies: list[str], seconds: float) -> list[Figure]:
    for wire in await _open(web, cookies[: len(cookies) // 10]):  # so that imports, threads and pools are there
        wire.close()
    await asyncio.sleep(2)
    before = web.resident_bytes
    wires = await _open(web, cookies)
    await asyncio.sleep(3)
    began, cpu_before = time.monotonic(), web.cpu_seconds
    await asyncio.sleep(seconds)
    share = (web.cpu_seconds - cpu_before) / (time.monotonic() - began)
    grown = web.resident_bytes - before
    for wire in wires:
        wire.close()
    return [
        Figure(f"{len(wires):,} sockets, memory each", grown / len(wires) / 1000, "KB", 50),
        Figure(f"{len(wires):,} idle sockets, CPU seconds each second", share, "s/s"),
    ]


async def _open(web: Process, cookies: list[str]) -> list[Wire]:
    """All of them, a few at a time, each greeted."""
    turn = asyncio.Semaphore(NUM_AT_ONCE)

    async def one(cookie: str) -> Wire:
        greeted = asyncio.Event()
        async with turn:
            wire = await connect(web.port, "/ws/chat/new/", cookie, lambda *_: greeted.set())
            await greeted.wait()
        return wire

    return await asyncio.gather(*map(one, cookies))
