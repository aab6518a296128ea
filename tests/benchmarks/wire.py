"""A WebSocket client that costs little, so that on few cores it is the server that is measured.

It knows what this site sends: unfragmented text frames, pings and a close.
"""

import asyncio
import base64
import os
import struct
import time
from collections.abc import Callable
from typing import Any

from chatsite.local.ports import LOOPBACK

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10

OnText = Callable[["Wire", bytes, int], None]
"""What to do with a frame's text; the last is the instant of its arrival, in nanoseconds of CLOCK_MONOTONIC."""


class Wire(asyncio.Protocol):
    def __init__(self, request: bytes, on_text: OnText) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_text = on_text
        self._request = request
        self._buffer = bytearray()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionError("refused"))

    def data_received(self, received: bytes) -> None:
        at = time.monotonic_ns()
        self._buffer += received
        if not self.opened.done() and not self._take_answer():
            return
        while (frame := self._next()) is not None:
            opcode, payload = frame
            if opcode == TEXT:
                self.on_text(self, payload, at)
            elif opcode == PING:
                self._send(PONG, payload)
            elif opcode == CLOSE:
                raise ConnectionError(f"closed by the server: {payload!r}")

    def send(self, text: str) -> None:
        self._send(TEXT, text.encode())

    def close(self) -> None:
        self._transport.close()

    def _take_answer(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._buffer.startswith(b"HTTP/1.1 101"):
            self.opened.set_exception(ConnectionError(bytes(self._buffer[:200]).decode()))
            return False
        del self._buffer[: end + 4]
        self.opened.set_result(None)
        return True

    def _next(self) -> tuple[int, bytes] | None:
        buffer, start = self._buffer, 2
        if len(buffer) < 2:
            return None
        length = buffer[1] & 127
        if length > 125:
            start = 4 if length == 126 else 10
            if len(buffer) < start:
                return None
            length = int.from_bytes(buffer[2:start])
        if len(buffer) < start + length:
            return None
        frame = buffer[0] & 15, bytes(buffer[start : start + length])
        del buffer[: start + length]
        return frame

    def _send(self, opcode: int, payload: bytes) -> None:
        length = len(payload)
        size = struct.pack("!B", 128 | length) if length < 126 else struct.pack("!BH", 254, length)
        # A mask of zeros is one, and leaves the payload as it is.
        self._transport.write(bytes((128 | opcode,)) + size + bytes(4) + payload)


async def connect(port: int, path: str, cookie: str, on_text: OnText) -> Wire:
    host = f"{LOOPBACK}:{port}"
    headers = {
        "Host": host,
        "Origin": f"http://{host}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Cookie": cookie,
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    request = "\r\n".join(lines).encode()
    _, wire = await asyncio.get_running_loop().create_connection(lambda: Wire(request, on_text), LOOPBACK, port)
    await wire.opened
    return wire
