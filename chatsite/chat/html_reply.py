"""A growing reply as rendered blocks, for a socket that asked for HTML.

Tokens are fed to the renderer as they come; what changed is sent at most ten times a second. A page that
doesn't acknowledge gets no more frames, and catches up with one when it does.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from django.utils.translation import override

from chatsite.chat.markdown import StreamRenderer

logger = logging.getLogger(__name__)

Frame = dict[str, Any]
MAX_UNACKNOWLEDGED = 8


class HtmlReply:
    """`prefix` is what earlier jobs wrote of the same reply. Belongs to one event loop."""

    def __init__(self, prefix: str, send: Callable[[Frame], Awaitable[None]], language: str) -> None:
        self._prefix = prefix
        self._send = send
        self._language = language  # of the buttons in it
        self._renderer = StreamRenderer(prefix)
        self._whole = True
        self._seq = 0
        self._sent_seq = -1
        self._last_sent = float("-inf")
        self._unacknowledged: deque[int] = deque()
        self._timer: asyncio.Task[None] | None = None
        self._ended = False
        self._lock = asyncio.Lock()

    def token(self, seq: int, text: str) -> None:
        self._renderer.feed(text)
        self._seq = seq
        self._schedule()

    async def snapshot(self, seq: int, text: str) -> None:
        self._renderer = StreamRenderer(self._prefix)
        self._renderer.feed(text)
        self._whole, self._seq, self._sent_seq = True, seq, -1
        await self._flush(final=False)

    async def acknowledge(self, seq: int) -> None:
        while self._unacknowledged and self._unacknowledged[0] <= seq:
            self._unacknowledged.popleft()
        if self._seq > self._sent_seq:
            self._schedule()

    async def end(self) -> None:
        """Send the final whole render, whatever was acknowledged."""
        # A flush that is on its way is let go: cancelled, its changes would be lost.
        self._ended = True
        try:
            await self._flush(final=True)
        except Exception:
            # The end itself must reach the page; a reload shows the reply as it is stored.
            logger.exception("a finished reply could not be rendered")

    def close(self) -> None:
        """Send nothing more; the socket or the reply is gone."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if (self._timer is None or self._timer.done()) and len(self._unacknowledged) < MAX_UNACKNOWLEDGED:
            self._timer = asyncio.create_task(self._flush_when_due())

    async def _flush_when_due(self) -> None:
        # Even the first waits for the loop's next turn, so that the answer to `follow` is one frame.
        await asyncio.sleep(max(0.0, self._last_sent + self._renderer.interval - time.monotonic()))
        if self._ended:
            return
        try:
            await self._flush(final=False)
        except Exception:
            logger.exception("a reply could not be rendered; its end will try again")
        self._timer = None
        if self._seq > self._sent_seq and not self._ended:
            self._schedule()

    async def _flush(self, *, final: bool) -> None:
        async with self._lock:
            if self._ended and not final:
                return
            with override(self._language):
                blocks, changes = self._renderer.update(final=final)
                if self._whole:
                    changes = list(enumerate(self._renderer.blocks()))
            self._whole = False
            self._sent_seq, self._last_sent = self._seq, time.monotonic()
            self._unacknowledged.append(self._seq)
            await self._send(
                {"type": "html", "seq": self._seq, "blocks": blocks, "changes": [list(c) for c in changes]}
            )
