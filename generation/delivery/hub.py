"""One tick a second for everything that this process's sockets follow.

Per tick: one query for the rows, one pipeline for the streams, one query for each line that somebody waits in, one
look at the sockets' sessions, and the sweep that every process does. It heals whatever a lost message left open.
Beside it a watch sends heartbeats and tells every socket what is down, in a task of its own: a tick may wait for
what is down.
"""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Coroutine, Iterable
from contextvars import Context
from typing import Protocol
from uuid import UUID

from generation import reaper, watching
from generation.absence import AbsentModels
from generation.delivery import stream
from generation.delivery.reader import JobReader
from generation.delivery.rows import JobRow, Place, in_database, job_rows, places
from generation.outages import Outages, Problem
from generation.sessions import SignIn, ended

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
ROWS_PER_QUERY = 500
TICKS_BETWEEN_COUNTS = 3
BEFORE_A_TURN = 32
"""So many sockets or readers are looked at before anything else may run."""


class Socket(Protocol):
    """What the hub asks of a consumer."""

    async def tick(self) -> None:
        """Send a heartbeat if it is due."""

    @property
    def sign_in(self) -> SignIn: ...

    async def signed_out(self) -> None:
        """Close: the sign-in this socket was opened with is over."""

    async def tell_problems(self, problems: tuple[Problem, ...]) -> None:
        """Say what is down now; nothing when all is well again."""


class Hub:
    """Belongs to one event loop; runs while somebody is registered."""

    def __init__(self) -> None:
        self._readers: set[JobReader] = set()
        self._sockets: set[Socket] = set()
        self._left: set[UUID] = set()
        self._is_watcher = False
        self._absent_models = AbsentModels()
        self._num_ticks = 0
        self._task: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self.problems: tuple[Problem, ...] = ()

    def add(self, reader: JobReader) -> None:
        self._readers.add(reader)
        self._run()

    def remove(self, reader: JobReader) -> None:
        if reader in self._readers:
            self._readers.discard(reader)
            self._left.add(reader.job_id)

    def add_socket(self, socket: Socket) -> None:
        self._sockets.add(socket)
        self._run()
        if self._watch_task is None or self._watch_task.done():
            self._watch_task = _for_all(self._watch())

    def remove_socket(self, socket: Socket) -> None:
        self._sockets.discard(socket)

    def num_sockets_of(self, user_id: object) -> int:
        return sum(socket.sign_in.user_id == user_id for socket in self._sockets)

    def _run(self) -> None:
        if self._task is None or self._task.done():
            self._task = _for_all(self._loop())

    async def _loop(self) -> None:
        while self._readers or self._sockets or self._left or self._is_watcher:
            await asyncio.sleep(TICK_SECONDS)
            for part in (
                self._check_sockets,
                self._check_rows,
                self._note_watched,
                self._sweep,
                self._end_jobs_of_absent_models,
            ):
                try:
                    await part()
                except Exception as error:
                    # The database or Redis is away; the next tick tries again.
                    logger.warning("a tick could not %s: %r", part.__name__.strip("_").replace("_", " "), error)

    async def _watch(self) -> None:
        while self._sockets:  # some may have come while what the last ones used was closed
            await self._watch_until_all_left()

    async def _watch_until_all_left(self) -> None:
        outages = Outages()
        try:
            while self._sockets:
                await asyncio.sleep(TICK_SECONDS)
                await _each(socket.tick() for socket in list(self._sockets))
                try:
                    changed = await outages.look()
                except Exception:
                    logger.exception("what is down could not be found out")  # heartbeats go on
                    continue
                if changed:
                    self.problems = outages.problems
                    await _each(socket.tell_problems(self.problems) for socket in list(self._sockets))
        finally:
            self.problems = ()
            await outages.close()

    async def _check_sockets(self) -> None:
        if sockets := list(self._sockets):
            over = await in_database(ended, {socket.sign_in for socket in sockets})
            await _each(socket.signed_out() for socket in sockets if socket.sign_in in over)

    async def _check_rows(self) -> None:
        readers = [reader for reader in self._readers if not reader.ended]
        if not readers:
            return
        ids = list({reader.job_id for reader in readers})
        rows: dict[UUID, JobRow] = {}
        for first in range(0, len(ids), ROWS_PER_QUERY):
            rows |= await in_database(job_rows, ids[first : first + ROWS_PER_QUERY])
        tails = await self._tails([job_id for job_id, row in rows.items() if row.epoch])
        waiting: dict[str, list[UUID]] = {}
        for row in rows.values():
            if row.state == "queued":
                waiting.setdefault(row.queue_id, []).append(row.id)
        found = await in_database(places, waiting)
        checks = []
        for reader in readers:
            if seen := rows.get(reader.job_id):
                checks.append((reader, seen, tails.get(reader.job_id, (0, 0)), found.get(reader.job_id)))
        await _each(_check(*each) for each in checks)

    async def _tails(self, job_ids: list[UUID]) -> dict[UUID, tuple[int, int]]:
        """(newest seq, origin) of each stream."""
        if not job_ids:
            return {}
        async with stream.async_client().pipeline(transaction=False) as pipe:
            for job_id in job_ids:
                pipe.xrevrange(stream.tokens_key(job_id), count=1)
                pipe.hget(stream.owner_key(job_id), "origin")
            answers = await pipe.execute()
        return {
            job_id: (int(newest[0][0].partition(b"-")[0]) if newest else 0, int(origin or 0))
            for job_id, newest, origin in zip(job_ids, answers[::2], answers[1::2], strict=True)
        }

    async def _note_watched(self) -> None:
        """Also who left since the last tick: they were here until now."""
        left = set(self._left)
        watched = {reader.job_id for reader in self._readers if not reader.ended}
        stays = bool(self._readers or self._sockets)
        await watching.note(watched | left, stays=stays)
        self._left -= left
        self._is_watcher = stays

    async def _sweep(self) -> None:
        await in_database(reaper.sweep)

    async def _end_jobs_of_absent_models(self) -> None:
        # It counts the whole line by model, which may be long, and nothing about it is urgent.
        self._num_ticks += 1
        if self._num_ticks % TICKS_BETWEEN_COUNTS == 0:
            await in_database(self._absent_models.sweep)


def _for_all(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """A task in a context of its own: that of the socket which woke the hub speaks its person's language."""
    return asyncio.get_running_loop().create_task(work, context=Context())


async def _check(reader: JobReader, row: JobRow, tail: tuple[int, int], place: Place | None) -> None:
    await reader.check(row, *tail)
    if place is not None:
        await reader.place(place)


async def _each(calls: Iterable[Awaitable[None]]) -> None:
    """Run them all: one that fails, on a broken connection say, keeps nobody else from being served.

    In turn, not as a task each: most have nothing to do. Tokens get a turn in between.
    """
    for number, call in enumerate(calls, 1):
        try:
            await call
        except Exception as error:
            logger.warning("a reader was left for the next tick: %r", error)
        if number % BEFORE_A_TURN == 0:
            await asyncio.sleep(0)


_hubs: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]" = weakref.WeakKeyDictionary()


def hub() -> Hub:
    """The running loop's hub."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
