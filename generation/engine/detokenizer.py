"""From sampled ids to text that may be shown: whole characters only, and never a part of a stop string.

Knows no tokenizer: a ``TokenStream`` turns ids into text. Its state is a function of the ids alone, so that
replaying them rebuilds it, held-back text included.
"""

from typing import Protocol


class TokenStream(Protocol):
    """The text of one reply, id by id."""

    def step(self, token_id: int) -> str:
        """The text that this id completes; never half a character, often nothing."""

    def finish(self) -> str:
        """What is still held and whole, once, after the last id."""


class StopStrings:
    """Releases text as soon as it can no longer become a stop string."""

    __slots__ = ("_held", "_stop")

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text to release, and whether a stop string is complete (text from its start on is dropped)."""
        text = self._held + text
        starts = [start for start in (text.find(stop) for stop in self._stop) if start >= 0]
        if starts:
            self._held = ""
            return text[: min(starts)], True
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of ``text`` that begins ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class Detokenizer:
    """The released text of one reply."""

    __slots__ = ("_stop", "_stream")

    def __init__(self, stream: TokenStream, stop: tuple[str, ...]) -> None:
        self._stream = stream
        self._stop = StopStrings(stop)

    def push(self, token_id: int, *, may_stop: bool = True) -> tuple[str, bool]:
        """The text that this id releases, and whether it completed a stop string.

        While ``may_stop`` is false stop strings are ordinary text, and text released then is not matched
        later.
        """
        text = self._stream.step(token_id)
        return self._stop.push(text) if may_stop else (text, False)

    def finish(self) -> tuple[str, bool]:
        """What is still held, after the last id; half a character is dropped."""
        text, stopped = self._stop.push(self._stream.finish())
        return (text, True) if stopped else (text + self._stop.flush(), False)
