"""The engine: takes prompts from any thread, takes all of them one token further per step, says what happened.

Owns the thread, the inbox and the delivery; a step itself is the batch's. Knows neither tensors nor how text is
made, neither Django nor Celery.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from generation.engine.batch import Batch, Happening
from generation.engine.config import EngineConfig, EngineStats
from generation.engine.detokenizer import Detokenizer
from generation.engine.errors import DeviceLost, EngineClosed, PromptError, PromptTooLong
from generation.engine.events import Event
from generation.engine.interfaces import Runner, TextCodec
from generation.engine.params import SamplingParams
from generation.engine.sequence import Sequence

logger = logging.getLogger(__name__)

OnEvents = Callable[[list[Event]], None]
OnLost = Callable[[DeviceLost], None]

# A paced engine that waits for an instant far away still shows that it lives.
_LONGEST_SLEEP_SECONDS = 1.0


class Engine:
    """Continuous batching over one model.

    ``model`` and ``tokenizer`` are a transformers causal model and its fast tokenizer, or a Runner and a
    TextCodec. With ``on_events`` the events of a step go to it as one list, from the engine's thread, and
    sequences keep none. When the device is lost ``on_lost`` is called from there, before every sequence ends with
    that error and the engine is closed.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: EngineConfig | None = None,
        on_events: OnEvents | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        self._runner, self._codec = _assemble(model, tokenizer, self.config)
        self._eos_ids = self._runner.eos_ids | self._codec.eos_ids
        self._on_events = on_events
        self._on_lost = on_lost
        slots = self.config.slots
        self._cache_tokens = self.config.cache_tokens or slots * self._runner.context
        self._batch = Batch(self._runner, slots, self.config.prefill_chunk, self._cache_tokens)
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._inbox: list[Sequence] = []
        self._cancelling = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._last_step_at = time.monotonic()

    @property
    def context(self) -> int:
        """Tokens that a prompt and its reply have together."""
        return min(self._runner.context, self._cache_tokens)

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        """Prompt ids of a conversation; a trailing assistant message is continued. Any thread; PromptError."""
        return self._codec.encode(messages)

    def submit(
        self,
        prompt_ids: Iterable[int],
        params: SamplingParams | None = None,
        *,
        identifier: Hashable = None,
        generated_ids: Iterable[int] = (),
    ) -> Sequence:
        """Queue a prompt. Any thread; raises PromptError, PromptTooLong, ParamsError, EngineClosed.

        ``generated_ids`` are ids of this reply that exist already: the sequence goes on after them, and if
        they already end the reply it only ends.
        """
        params = params or SamplingParams()
        prompt, generated = list(prompt_ids), list(generated_ids)
        if not prompt:
            raise PromptError("the prompt is empty")
        self._check_ids(prompt)
        self._check_ids(generated)
        params.check_ids(self._runner.vocab_size)
        room = self.context - len(prompt)
        if room < 1:
            raise PromptTooLong(len(prompt), self.context - 1)
        sequence = Sequence(
            prompt,
            params,
            identifier=identifier,
            seed=params.seed if params.seed is not None else secrets.randbits(63),
            max_new_tokens=min(params.max_new_tokens or room, room),
            eos_ids=self._eos_ids,
            detokenizer=Detokenizer(self._codec.stream(prompt), params.stop),
            wake=self._notify_cancel,
            start_reading=self._ensure_running,
            keep_events=self._on_events is None,
        )
        sequence.replay(generated)
        with self._wake:
            if self._closed:
                raise EngineClosed
            if self.stats().idle:
                self._last_step_at = time.monotonic()  # idleness is no step that takes long
            self._inbox.append(sequence)
            self._wake.notify_all()
        return sequence

    def start(self) -> "Engine":
        """Start the engine's thread; does nothing if it runs."""
        with self._lock:
            if self._closed:
                raise EngineClosed
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
                self._thread.start()
        return self

    def iterate(self) -> list[Event]:
        """Do one step in the calling thread; its events of all sequences. Only while no thread is started."""
        with self._lock:
            if self._closed:
                raise EngineClosed
            if self._thread is not None:
                raise RuntimeError("the engine's thread runs: its events come through sequences or on_events")
        return self._step()

    def num_remaining_jobs(self) -> int:
        """Sequences that have not ended."""
        return len(self._inbox) + self._batch.num_running + self._batch.num_waiting

    def stats(self) -> EngineStats:
        running = self._batch.num_running
        waiting = len(self._inbox) + self._batch.num_waiting
        return EngineStats(
            slots=self.config.slots,
            running=running,
            waiting=waiting,
            steps=self._batch.num_steps,
            last_step_at=self._last_step_at,
            idle=not running and not waiting,
            alive=self._thread is not None and self._thread.is_alive(),
            device=self._runner.device,
            dtype=self._runner.dtype,
        )

    def close(self, timeout: float = 30.0) -> None:
        """Stop after the current step and end every sequence with an EngineClosed error. Any thread, any time."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        with self._lock:
            left, self._inbox = self._inbox, []
        # A step that still hangs ends nobody any more: the first end of a sequence is its only one.
        self._deliver(self._batch.abandon(left, EngineClosed()))

    # -- the engine's thread

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not self._closed and (seconds := self._seconds_to_wait()) != 0:
                    self._wake.wait(seconds)
                    self._last_step_at = time.monotonic()
                if self._closed:
                    return
            self._step()

    def _seconds_to_wait(self) -> float | None:
        """0 when there is something to do, None when nothing is."""
        if self._inbox or self._cancelling:
            return 0
        due_at = self._batch.next_due_at()
        if due_at == float("inf"):
            return None
        return min(max(0.0, due_at - time.monotonic()), _LONGEST_SLEEP_SECONDS)

    def _step(self) -> list[Event]:
        with self._lock:
            arrived, self._inbox = self._inbox, []
            self._cancelling = False
        happened = self._batch.step(arrived)
        if self._batch.lost is not None:
            happened += self._lose(self._batch.lost)
        self._last_step_at = time.monotonic()
        self._deliver(happened)
        return [event for _, event in happened]

    def _lose(self, error: DeviceLost) -> list[Happening]:
        if self._on_lost is None:
            logger.critical("%s", error)
        else:
            self._on_lost(error)
        with self._lock:
            self._closed = True
            left, self._inbox = self._inbox, []
        return self._batch.abandon(left, error)

    def _deliver(self, happened: list[Happening]) -> None:
        if not happened:
            return
        if self._on_events is not None:
            try:
                self._on_events([event for _, event in happened])
            except Exception:
                logger.exception("on_events failed; the events of one step are lost")
        for sequence, event in happened:
            sequence.deliver(event)

    # -- any thread

    def _check_ids(self, ids: list[int]) -> None:
        # An id beyond the embedding would poison a CUDA context for everybody.
        size = self._runner.vocab_size
        if any(token_id < 0 or (size is not None and token_id >= size) for token_id in ids):
            raise PromptError(f"the prompt holds ids outside the model's vocabulary of {size}")

    def _notify_cancel(self) -> None:
        with self._wake:
            self._cancelling = True
            self._wake.notify_all()

    def _ensure_running(self) -> None:
        if self._thread is None and not self._closed:
            self.start()


def _assemble(model: Any, tokenizer: Any, config: EngineConfig) -> tuple[Runner, TextCodec]:
    if not isinstance(model, Runner):
        from generation.engine.runner import PackedRunner

        model = PackedRunner(model, config.slots, config.context)
    if not isinstance(tokenizer, TextCodec):
        from generation.engine.tokenizer import ChatTokenizer

        tokenizer = ChatTokenizer(tokenizer)
    return model, tokenizer
