"""Progress of what takes long while a model loads, as lines of a log instead of bars on a terminal."""

import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TextIO

from generation.engine.interfaces import Log

_INTERVAL_SECONDS = 5.0

_UP = "\x1b[A"
_BAR = re.compile(r"(?P<name>.*?):?\s*(?P<percent>\d+)%\|[^|]*\| (?P<done>\S+)/(?P<total>\S+) .*")


class _BarsToLines(io.TextIOBase):
    """Standard error without bars: what redraws its line becomes a log line now and then, the rest passes."""

    encoding = "utf-8"

    def __init__(self, log: Log, prefix: str, passed_to: TextIO) -> None:
        self._log = log
        self._prefix = prefix
        self._passed_to = passed_to
        self._told_at = 0.0
        self._in_bar = False

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            now = time.monotonic()
            if not self._in_bar:
                self._in_bar, self._told_at = True, now  # a bar that is quick needs no line
            elif now - self._told_at >= _INTERVAL_SECONDS and (said := _said(text.strip())):
                self._told_at = now
                self._log(f"{self._prefix}: {said}")
        elif self._in_bar and not text.replace(_UP, "").strip():  # from one bar to another, or the end of it
            self._in_bar = _UP in text
        else:
            self._passed_to.write(text)
        return len(text)

    def flush(self) -> None:
        self._passed_to.flush()


def _said(bar: str) -> str:
    """A bar's words and figures; all of it where it knows no end."""
    known = _BAR.fullmatch(bar)
    return "{name} {percent} %, {done} of {total}".format(**known.groupdict()) if known else bar


@contextmanager
def bars_to_log(log: Log, prefix: str) -> Iterator[None]:
    """Bars that transformers, its hub and GGUF draw meanwhile are told by ``log``, one line in five seconds."""
    with redirect_stderr(_BarsToLines(log, prefix, sys.stderr)):
        yield


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' own progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
