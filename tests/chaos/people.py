"""People who ask, read slowly, reload, lose their connection and stop replies; each keeps what it received."""

import asyncio
import json
import random
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from tests.chaos.scripts import Ask, Scripts

ENDS = ("finished", "failed", "cancelled", "expired")
SILENCE_SECONDS = 40.0
"""A server sends a heartbeat after 15 s of silence; a browser that hears nothing for so long reconnects."""


@dataclass(slots=True, eq=False)
class Reply:
    """One prompt and all that was received of its reply."""

    client_id: str
    ask: Ask
    job: str = ""
    conversation: str = ""
    text: str = ""
    seq: int = 0
    origin: int | None = None
    end: str = ""
    end_frame: dict[str, Any] = field(default_factory=dict)
    num_snapshots: int = 0
    longest_gap: float = 0.0
    faults: list[str] = field(default_factory=list)

    def take(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "token":
                if frame["seq"] != self.seq + 1:
                    self.faults.append(f"seq {frame['seq']} came after {self.seq}")
                self.seq, self.origin = frame["seq"], frame["origin"]
                self.text += frame["text"]
            case "snapshot":
                self.seq, self.origin, self.text = frame["seq"], frame["origin"], frame["text"]
                self.num_snapshots += 1
            case kind if kind in ENDS:
                if self.end:
                    self.faults.append(f"{kind} came after {self.end}")
                self.end, self.end_frame = kind, frame

    @property
    def code(self) -> str:
        return str(self.end_frame.get("code", ""))

    def complaints(self) -> list[str]:
        """What is wrong with it, in words; a reply that ended early must be a beginning of the expected text."""
        found = list(self.faults)
        expected = self.ask.expected
        if self.end not in ("finished", "cancelled", "failed"):
            found.append(f"ended as {self.end or 'nothing'}: {self.end_frame}")
        elif self.end == "finished" and (self.ask.fails_with or self.text != expected):
            due = self.ask.fails_with or repr(expected)
            found.append(f"finished with {self.text!r}, expected {due}")
        elif not expected.startswith(self.text):
            found.append(f"is {self.end} with {self.text!r}, no beginning of {expected!r}")
        return found


class Person:
    """One browser of one person: one conversation after the other, until told to stop.

    `stops` is the share of replies that they stop midway. What is in `requests` is asked before their own prompts.
    """

    def __init__(
        self,
        number: int,
        origin: str,
        cookie: str,
        seed: int,
        scripts: Scripts,
        requests: deque[Ask],
        *,
        stops: float = 0.1,
    ) -> None:
        self.replies: list[Reply] = []
        self.stopping = False
        self._stops = stops
        self._origin = origin
        self._cookie = cookie
        self._random = random.Random(f"{seed}/{number}")
        self._scripts = scripts
        self._requests = requests

    async def talk(self) -> None:
        while not self.stopping:
            conversation = ""
            for ask in self._scripts(self._random):
                while self._requests:
                    await self.ask(self._requests.popleft(), stops=0)
                if self.stopping:
                    return
                reply = await self.ask(ask, conversation, stops=self._stops)
                conversation = reply.conversation
                await asyncio.sleep(self._random.uniform(0, 0.5))
                if reply.end != "finished":
                    break  # what comes next would be answered otherwise

    def draw(self, chance: random.Random) -> Ask:
        """The first prompt of a conversation."""
        return self._scripts(chance)[0]

    async def ask(self, ask: Ask, conversation: str = "", *, stops: float = 0.0) -> Reply:
        """One prompt and its whole reply, through whatever happens."""
        reply = Reply(str(uuid4()), ask, conversation=conversation)
        self.replies.append(reply)
        stop_at = self._random.randint(1, ask.params["max_new_tokens"]) if self._random.random() < stops else 0
        while not reply.end:
            try:
                async with self._open(reply) as socket:
                    await self._begin(socket, reply)
                    if not reply.seq:
                        await asyncio.sleep(ask.idle_seconds)
                    await self._read(socket, reply, stop_at)
            except (OSError, WebSocketException, TimeoutError):
                await asyncio.sleep(self._random.uniform(0.1, 0.6))
        return reply

    def _open(self, reply: Reply) -> connect:
        place = reply.conversation or "new"
        return connect(
            f"{self._origin.replace('http', 'ws', 1)}/ws/chat/{place}/",
            origin=self._origin,  # type: ignore[arg-type]
            additional_headers={"Cookie": self._cookie},
            proxy=None,
            open_timeout=10,
            close_timeout=1,
        )

    async def _begin(self, socket: ClientConnection, reply: Reply) -> None:
        if reply.job:
            frame = {"type": "follow", "job": reply.job, "after": reply.seq, "origin": reply.origin}
        else:
            frame = {"type": "prompt", "id": reply.client_id, "text": reply.ask.text, "params": reply.ask.params}
        await socket.send(json.dumps(frame))

    async def _read(self, socket: ClientConnection, reply: Reply, stop_at: int) -> None:
        leaves_at = reply.seq + self._random.randint(1, 60) if self._random.random() < 0.3 else 0
        last = time.monotonic()
        is_followed = False
        while not reply.end:
            frame = json.loads(await asyncio.wait_for(socket.recv(), SILENCE_SECONDS))
            if frame["type"] == "error":
                # Refused because something is down: a person would try again. What is followed goes on meanwhile.
                await asyncio.sleep(self._random.uniform(0.2, 1.0))
                if not is_followed:
                    await self._begin(socket, reply)
                elif 0 < stop_at <= reply.seq:
                    await socket.send(json.dumps({"type": "cancel", "job": reply.job}))
                continue
            if frame.get("client_id") == reply.client_id:
                reply.job, reply.conversation = frame["job"], frame["conversation"]
            if frame.get("job") != reply.job:
                continue
            is_followed = True
            reply.take(frame)
            if frame["type"] == "token":
                reply.longest_gap = max(reply.longest_gap, time.monotonic() - last)
                last = time.monotonic()
                if reply.seq % 32 == 0:
                    await socket.send(json.dumps({"type": "ack", "job": reply.job, "seq": reply.seq}))
                if reply.seq == stop_at:
                    await socket.send(json.dumps({"type": "cancel", "job": reply.job}))
                if self._random.random() < 0.01:
                    await asyncio.sleep(self._random.uniform(0.1, 1.0))
                if reply.seq == leaves_at:
                    return
