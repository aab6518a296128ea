"""What processes print, line by line under their coloured names. It interprets nothing."""

import os
import sys
import threading
from typing import IO, TextIO

COLOURS = {"redis": 35, "web": 36, "worker": 32, "flower": 33, "up": 34}
MAX_PENDING_BYTES = 64 * 1024
"""A longer line is printed in pieces instead of being kept."""


class Output:
    """Prints whole lines from several threads to one stream; coloured only on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._coloured = self._stream.isatty() and "NO_COLOR" not in os.environ
        self._lock = threading.Lock()

    def line(self, name: str, text: str) -> None:
        prefix = f"{name:<7}│ "
        if self._coloured:
            prefix = f"\033[{COLOURS.get(name.partition('-')[0], 37)}m{prefix}\033[0m"
        self.plain(prefix + text)

    def tell(self, text: str) -> None:
        self.line("up", text)

    def plain(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        with self._lock:
            try:
                self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
                self._stream.flush()
            except OSError:
                # The terminal or the pipe's reader is gone; what it would have shown must not end the site.
                self._drop()

    def _drop(self) -> None:
        """From now on print into nothing."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def follow(self, name: str, source: IO[bytes]) -> threading.Thread:
        """Print what comes from `source` until it ends, in a thread of its own."""
        thread = threading.Thread(target=self._pump, args=(name, source), name=f"output of {name}", daemon=True)
        thread.start()
        return thread

    def _pump(self, name: str, source: IO[bytes]) -> None:
        pending = b""
        with source:
            while piece := os.read(source.fileno(), 65536):
                # A progress bar ends its lines with a carriage return.
                *lines, pending = (pending + piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n")
                if len(pending) > MAX_PENDING_BYTES:
                    lines, pending = [*lines, pending], b""
                for line in lines:
                    self._print(name, line)
        if pending:
            self._print(name, pending)

    def _print(self, name: str, line: bytes) -> None:
        if line.strip():
            self.line(name, line.decode("utf-8", "replace").rstrip())
