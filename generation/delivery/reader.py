"""One job as one reader sees it: a line place, a start, every token once and in order, the end.

Messages of the channel group are hints that something is new; the stream is the truth for tokens and the row for
states. Whatever was missed is found by the hub's check, once a second. A reader that doesn't acknowledge gets at
most `window` token frames; the rest waits in the stream.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import redis

from generation.delivery import stream
from generation.delivery.rows import JobRow, Place, SaidPlace, read_row

Frame = dict[str, Any]

WINDOW = 256
PATIENCE_SECONDS = 2.0
"""How long a final row waits for the rest of its stream before the row's text is sent instead."""

ENDS = ("finished", "failed", "cancelled", "expired")


class JobReader:
    """Turns a job into the protocol's frames, given to `send` one after the other.

    `after` and `origin` are what the reader has seen before. With `announce_queued` the first frame is `queued`,
    whatever the job's state. Belongs to one event loop.
    """

    def __init__(
        self,
        job_id: UUID,
        send: Callable[[Frame], Awaitable[None]],
        *,
        after: int = 0,
        origin: int | None = None,
        window: int | None = WINDOW,
        announce_queued: bool = False,
    ) -> None:
        self.job_id = job_id
        self.seq = after
        self.acked = after
        self.origin = origin
        self.ended = False
        self.row: JobRow | None = None
        self._send = send
        self._window = window
        self._announced_epoch = 0
        # From the first moment on: a message may come before `start`.
        self._owes_queued = announce_queued
        self._place: SaidPlace | None = None
        self._final_since: float | None = None
        self._lock = asyncio.Lock()

    async def start(self, row: JobRow | None = None) -> None:
        """Say where the job stands, then send what its stream holds. `row` spares the look-up.

        May fail while Redis or the database is away; the hub's next check then does what is left.
        """
        async with self._lock:
            row = row or await read_row(self.job_id)
            if row is not None:
                await self._take_row(row)

    async def restate(self) -> None:
        """Say again where the job stands, `queued` first: its prompt was sent twice."""
        async with self._lock:
            row = await read_row(self.job_id)
            if row is None or self.ended:
                return
            self._owes_queued = True
            if row.state != "queued":
                self._announced_epoch = 0  # `started` follows, lest it seems to wait
            await self._take_row(row)

    async def message(self, message: dict[str, Any]) -> None:
        """A message of the job's channel group."""
        kind = message.get("type")
        async with self._lock:
            if self.ended:
                return
            if kind == "job.token":
                await self._take_token(message)
            elif kind == "job.prefill":
                await self._take_prefill(message)
            elif kind == "job.changed":
                row = await read_row(self.job_id)
                if row is not None:
                    await self._take_row(row)

    async def acknowledge(self, seq: int) -> None:
        async with self._lock:
            if self.acked < seq <= self.seq:
                was_full = not self._room()
                self.acked = seq
                if was_full and not self.ended:
                    await self._fill()

    async def check(self, row: JobRow, newest_seq: int, origin: int) -> None:
        """The hub's look, once a second: `newest_seq` and `origin` are the stream's, 0 if there is none."""
        async with self._lock:
            if self.ended:
                return
            if self.row is None or row.changed_from(self.row):
                await self._take_row(row)
            elif row.is_final:
                await self._finish_from(row)
            elif newest_seq > self.seq or (newest_seq and origin != self.origin):
                await self._fill()

    async def place(self, place: Place) -> None:
        """Where the job stands in line now; sent only if it changed."""
        async with self._lock:
            waits = self.row is not None and self.row.state == "queued" and not self.ended
            if waits and (self._place is None or self._place.is_news(place)):
                await self._emit_queued(place)

    async def _take_row(self, row: JobRow) -> None:
        if self.row is not None and row.epoch < self.row.epoch:
            return
        self.row = row
        if not row.is_final:
            self._final_since = None
        never_started = row.is_final and not row.epoch
        if never_started and self._place is None:
            await self._emit_queued(Place(1, 1))
        if row.state == "queued":
            await self._emit_queued(await row.place())
        elif row.state == "running":
            await self._announce(row)
            await self._fill()
        else:
            if row.epoch:
                await self._announce(row)
            await self._finish_from(row)

    async def _take_token(self, message: dict[str, Any]) -> None:
        seq, origin, epoch = message["seq"], message["origin"], message["epoch"]
        if epoch < self._announced_epoch or not await self._is_announced(epoch):
            return
        if seq != self.seq + 1 or (self.origin is not None and origin != self.origin) or not self._room():
            if seq > self.seq or origin != self.origin:
                await self._fill()
            return
        self.origin = origin
        await self._emit_entry(seq, message["text"], message.get("end"))

    async def _take_prefill(self, message: dict[str, Any]) -> None:
        if message["epoch"] == self._announced_epoch:
            frame = {"type": "prefill", "done": message["done"], "total": message["total"]}
            await self._send({**frame, "job": str(self.job_id)})

    async def _fill(self) -> None:
        """Send what the stream has after the last seq, as far as the window allows."""
        while not self.ended and self._room():
            client = stream.async_client()
            async with client.pipeline(transaction=True) as pipe:
                pipe.hmget(stream.owner_key(self.job_id), "origin", "epoch")
                pipe.xrange(stream.tokens_key(self.job_id), min=f"({self.seq}-0", count=self._batch())
                owner, raw = await pipe.execute()
            origin, epoch = (int(number or 0) for number in owner)
            if not await self._is_announced(epoch):
                return
            if origin and self.origin is not None and origin != self.origin:
                await self._snapshot(origin)
                continue
            if origin and self.origin is None:
                self.origin = origin
            if not raw:
                return
            for entry in (stream.parse_entry(*pair) for pair in raw):
                if entry.seq != self.seq + 1:
                    return
                await self._emit_entry(entry.seq, entry.text, entry.end)

    async def _snapshot(self, origin: int) -> None:
        """The stream began anew: replace all that was shown by what it holds now."""
        raw = await stream.async_client().xrange(stream.tokens_key(self.job_id))
        entries = [entry for pair in raw if not (entry := stream.parse_entry(*pair)).end]
        self.origin = origin
        self.seq = self.acked = entries[-1].seq if entries else 0
        text = "".join(entry.text for entry in entries)
        await self._emit({"type": "snapshot", "seq": self.seq, "text": text, "origin": origin})

    async def _finish_from(self, row: JobRow) -> None:
        """The row is final: send the rest of the stream, or else the row's text, then the end."""
        if self._final_since is None:
            self._final_since = time.monotonic()
        await self._fill()
        if self.ended:
            return
        last = max(0, row.last_seq - 1)
        if self.origin in (None, row.origin) and self.seq == last:
            await self._emit_end(row.end_frame())
            return
        gone = not await stream.async_client().exists(stream.tokens_key(self.job_id))
        if self._room() and (gone or time.monotonic() - self._final_since > PATIENCE_SECONDS):
            full = await read_row(self.job_id, with_text=True)
            if full is None:
                return
            self.origin, self.seq, self.acked = row.origin, last, last
            await self._emit({"type": "snapshot", "seq": last, "text": full.text, "origin": row.origin})
            await self._emit_end(row.end_frame())

    def _room(self) -> bool:
        return self._window is None or self.seq - self.acked < self._window

    def _batch(self) -> int:
        return WINDOW if self._window is None else self._window - (self.seq - self.acked)

    async def _is_announced(self, epoch: int) -> bool:
        """Before an entry of a new epoch comes its `started`; False while the row doesn't know that epoch."""
        if epoch > self._announced_epoch:
            row = await read_row(self.job_id)
            if row is None or row.epoch < epoch:
                return False
            self.row = row  # else the hub would still say where it stands in line
            await self._announce(row)
        return True

    async def _announce(self, row: JobRow) -> None:
        if row.epoch > self._announced_epoch:
            if self._owes_queued:
                # Whoever asked learns the job's id by it; what comes before it would be nobody's.
                await self._emit_queued(Place(1, 1))
            origin = row.origin or await self._origin_under(row.epoch)
            self._announced_epoch = row.epoch
            self._place = None
            frame: Frame = {"type": "started", "waited_seconds": row.waited_seconds, "attempt": row.attempt}
            if origin:
                frame["origin"] = origin
            await self._emit(frame)

    async def _origin_under(self, epoch: int) -> int:
        """The stream's origin, 0 if this claim has not declared one yet or Redis doesn't say."""
        try:
            owner = await stream.async_client().hmget(stream.owner_key(self.job_id), "epoch", "origin")
        except (redis.RedisError, OSError):
            return 0
        return int(owner[1] or 0) if int(owner[0] or 0) == epoch else 0

    async def _emit_queued(self, place: Place) -> None:
        self._place = SaidPlace(place, time.monotonic())
        self._owes_queued = False
        await self._emit(
            {
                "type": "queued",
                "position": place.position,
                "queue_size": place.size,
                "eta_seconds": place.eta_seconds,
                "paused": place.paused,
            }
        )

    async def _emit_entry(self, seq: int, text: str, end: Frame | None) -> None:
        self.seq = seq
        if end is not None:
            await self._emit_end(dict(end))
        else:
            await self._emit({"type": "token", "seq": seq, "text": text, "origin": self.origin})

    async def _emit_end(self, frame: Frame) -> None:
        self.ended = True
        await self._emit(frame)

    async def _emit(self, frame: Frame) -> None:
        await self._send({**frame, "job": str(self.job_id)})
