"""One step of all sequences: cancel, admit, compute, accept; and what of it is worth telling.

Knows the scheduler and a runner; neither threads nor readers. A failed step fails its sequences, a failed sequence
only itself, and the batch goes on, unless the device itself is lost.
"""

import logging
import time
from functools import partial

from generation.engine.errors import DeviceLost
from generation.engine.events import Event, EventType, FinishReason
from generation.engine.interfaces import Runner
from generation.engine.scheduler import Plan, Scheduler
from generation.engine.sequence import Sequence

logger = logging.getLogger(__name__)

Happening = tuple[Sequence, Event]


class Batch:
    """Used by one thread at a time; the counts may be read by any."""

    def __init__(self, runner: Runner, slots: int, prefill_chunk: int | None, cache_tokens: int) -> None:
        self._runner = runner
        self._new_scheduler = partial(Scheduler, slots, prefill_chunk, cache_tokens, runner.keeps_prefixes)
        self._scheduler = self._new_scheduler()
        self.num_steps = 0
        self.lost: DeviceLost | None = None

    @property
    def num_running(self) -> int:
        return len(self._scheduler.active)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    def next_due_at(self) -> float:
        """When the next step has something to do: an instant, 0 for now, infinity for never."""
        return self._scheduler.next_due_at()

    def step(self, arrived: list[Sequence]) -> list[Happening]:
        """Take every running sequence one token further, and in those that wait as far as there is room.

        Once `lost` is set no other step is to be made.
        """
        happened: list[Happening] = []
        for sequence in arrived:
            if sequence.replayed_reason is not None:
                happened.append((sequence, sequence.end(sequence.replayed_reason)))
            else:
                self._scheduler.add(sequence)
        self._remove_cancelled(happened)
        now = time.monotonic()
        plan = self._scheduler.plan(now, self._runner.interval)
        for admission in plan.admitted:
            sequence = admission.sequence
            sequence.started_at = now
            happened.append((sequence, Event(EventType.STARTED, sequence.identifier)))
        if plan.decode or plan.prefill:
            self._run(plan, happened)
            self.num_steps += 1
        return happened

    def abandon(self, arrived: list[Sequence], error: Exception) -> list[Happening]:
        """End everyone with an error and forget them."""
        left = [*arrived, *self._scheduler.active, *self._scheduler.waiting]
        self._scheduler = self._new_scheduler()
        return [(sequence, sequence.end(FinishReason.ERROR, error)) for sequence in left]

    def _remove_cancelled(self, happened: list[Happening]) -> None:
        everyone = [*self._scheduler.active, *self._scheduler.waiting]
        cancelled = [sequence for sequence in everyone if sequence.cancelled]
        for sequence in cancelled:
            self._scheduler.remove(sequence)
            happened.append((sequence, sequence.end(FinishReason.CANCELLED)))

    def _run(self, plan: Plan, happened: list[Happening]) -> None:
        started_at = time.perf_counter()
        try:
            results = self._runner.run(plan)
        except Exception as error:  # the engine goes on: only the sequences of this step are lost
            logger.exception("a step of %d sequences failed", self.num_running)
            self.lost = self._lost_device()
            cause = self.lost or error
            happened += [(each, each.end(FinishReason.ERROR, cause)) for each in self._scheduler.clear()]
            return
        self._scheduler.commit(plan)
        if not self._runner.interval:
            seconds = time.perf_counter() - started_at
            self._scheduler.pace.note(len(plan.decode), sum(each.length for each in plan.prefill), seconds)
        for segment in plan.prefill:
            sequence, total = segment.sequence, len(segment.sequence.ids)
            # Shorter ones are done before anyone could look.
            if total - sequence.num_reused > self._scheduler.prefill_chunk:
                event = Event(EventType.PREFILL, sequence.identifier, done=sequence.num_computed, total=total)
                happened.append((sequence, event))
        for segment, result in zip(plan.sampling, results, strict=True):
            events = self._accept(segment.sequence, result)
            happened += [(segment.sequence, event) for event in events]
            if events[-1].type is EventType.END:
                self._scheduler.remove(segment.sequence, keep=events[-1].reason is not FinishReason.ERROR)

    def _lost_device(self) -> DeviceLost | None:
        try:
            self._runner.check()
        except Exception as error:
            return DeviceLost(error)
        return None

    def _accept(self, sequence: Sequence, result: int | Exception) -> list[Event]:
        """The events of one sequence's next id; never raises, so that no other sequence is touched."""
        try:
            if isinstance(result, Exception):
                raise result
            text, reason = sequence.accept(result)
        except Exception as error:
            logger.exception("a sequence failed")
            return [sequence.end(FinishReason.ERROR, error)]
        now = time.monotonic()
        if sequence.first_token_at is None:
            sequence.first_token_at = now
        if interval := self._runner.interval:
            # After a stall the rhythm begins anew instead of catching up in a burst.
            due_at = sequence.due_at + interval
            sequence.due_at = due_at if due_at > now else now + interval
        events = [Event(EventType.TOKEN, sequence.identifier, ids=(result,), text=text)]
        return events if reason is None else [*events, sequence.end(reason)]
