"""One prompt and its reply inside the engine: its ids, where it stands, and its events. Knows no tensors."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator

from generation.engine.detokenizer import Detokenizer
from generation.engine.events import Event, EventType, FinishReason, Timings, Usage
from generation.engine.params import SamplingParams


class Sequence:
    """What ``Engine.submit`` returns. ``for event in sequence`` and ``async for event in sequence`` end
    after the end event; whoever reads slowly holds up nobody, since events wait here.

    The engine's thread alone changes ids and counts; ``cancel``, ``wait`` and reading are for any thread.
    """

    def __init__(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        identifier: Hashable,
        seed: int,
        max_new_tokens: int,
        eos_ids: frozenset[int],
        detokenizer: Detokenizer,
        wake: Callable[[], None],
        start_reading: Callable[[], None],
        keep_events: bool,
    ) -> None:
        self.identifier = identifier
        self.params = params
        self.seed = seed
        self.ids = list(prompt_ids)
        self.num_prompt = len(prompt_ids)
        self.num_computed = 0  # ids whose keys and values are in the slot
        self.num_reused = 0  # of those, computed before for an earlier sequence
        self.num_passed = 0  # later sequences that were admitted before it
        self.num_replayed = 0  # generated ids that came with the submission
        self.max_new_tokens = max_new_tokens
        self.eos_ids = frozenset() if params.ignore_eos else eos_ids
        self.due_at = 0.0  # not sampled before this instant; paced models only
        self.cancelled = False
        self.replayed_reason: FinishReason | None = None
        self.submitted_at = time.monotonic()
        self.started_at: float | None = None
        self.first_token_at: float | None = None
        self._detokenizer = detokenizer
        self._wake = wake
        self._start_reading = start_reading
        self._events = _EventQueue() if keep_events else None
        self._ended = threading.Event()
        self._end_event: Event | None = None

    @property
    def num_generated(self) -> int:
        return len(self.ids) - self.num_prompt

    @property
    def generated_ids(self) -> list[int]:
        return self.ids[self.num_prompt :]

    @property
    def num_remaining(self) -> int:
        """Ids that the model has not seen yet; 1 while decoding."""
        return len(self.ids) - self.num_computed

    @property
    def num_reserved(self) -> int:
        """Ids that there may be at the end."""
        return self.num_prompt + self.max_new_tokens

    def replay(self, generated_ids: list[int]) -> None:
        """Take ids of an earlier attempt as generated; what follows an end among them is left out."""
        for token_id in generated_ids:
            self.num_replayed += 1
            _, self.replayed_reason = self.accept(token_id)
            if self.replayed_reason is not None:
                return

    def accept(self, token_id: int) -> tuple[str, FinishReason | None]:
        """Append a sampled id; the text it releases, and why the reply ends with it, if it does."""
        self.ids.append(token_id)
        if token_id in self.eos_ids:
            text, stopped = self._detokenizer.finish()
            return text, FinishReason.STOP_STRING if stopped else FinishReason.STOP
        may_stop = self.num_generated > self.params.min_new_tokens
        text, stopped = self._detokenizer.push(token_id, may_stop=may_stop)
        if stopped:
            return text, FinishReason.STOP_STRING
        if self.num_generated >= self.max_new_tokens:
            tail, stopped = self._detokenizer.finish()
            return text + tail, FinishReason.STOP_STRING if stopped else FinishReason.LENGTH
        return text, None

    def end(self, reason: FinishReason, error: BaseException | None = None) -> Event:
        """The end event. Only the first call's counts for ``wait`` and ``ended``."""
        now = time.monotonic()
        started = self.started_at if self.started_at is not None else now
        first = self.first_token_at
        return Event(
            EventType.END,
            self.identifier,
            reason=reason,
            error=error,
            usage=Usage(self.num_prompt, self.num_generated, min(self.num_reused, self.num_prompt)),
            timings=Timings(
                queue=started - self.submitted_at,
                prefill=first - started if first is not None else 0.0,
                first_token=first - self.submitted_at if first is not None else 0.0,
                total=now - self.submitted_at,
            ),
        )

    def deliver(self, event: Event) -> None:
        """Hand an event to whoever reads this sequence. Never blocks; after the end nothing is taken any more."""
        if self._end_event is not None:
            return
        if event.type is EventType.END:
            self._end_event = event
        if self._events is not None:
            self._events.put(event)
        if event.type is EventType.END:
            self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def cancel(self) -> None:
        """Stop within two steps, wherever the sequence is; it ends with ``cancelled``. Harmless after the end."""
        self.cancelled = True
        self._wake()

    def wait(self, timeout: float | None = None) -> Event | None:
        """The end event, or None when ``timeout`` seconds pass before it."""
        self._ended.wait(timeout)
        return self._end_event if self._ended.is_set() else None

    def __iter__(self) -> Iterator[Event]:
        events = self._readable()
        while (event := events.get()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        events = self._readable()
        while (event := await events.get_async()) is not None:
            yield event

    def _readable(self) -> "_EventQueue":
        if self._events is None:
            raise RuntimeError("this engine gives its events to on_events; a sequence keeps none")
        self._start_reading()
        return self._events


class _EventQueue:
    """Events of one sequence on their way from the engine's thread to a thread or an event loop."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def put(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            self._closed = event.type is EventType.END
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        for loop, future in waiters:
            with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
                loop.call_soon_threadsafe(_resolve, future)

    def get(self) -> Event | None:
        """The next event, waiting for it; None after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed)
            return self._events.popleft() if self._events else None

    async def get_async(self) -> Event | None:
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._closed:
                    return None
                future = loop.create_future()
                self._waiters.append((loop, future))
            await future


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
