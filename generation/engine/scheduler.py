"""Who is admitted, and what the next step computes. Knows no tensors and no text; slots are the table's.

A step takes every decoding sequence one token further and spends what its chunk budget allows on prompts, first
come first served, so that a long prompt never holds up others. Waiting sequences are admitted in the order they
came, when a slot and the tokens that they may come to are free; one that doesn't fit yet is passed by later ones
that do, but not for ever.
"""

import sys
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from generation.engine.pace import Pace
from generation.engine.sequence import Sequence
from generation.engine.slots import Admission, SlotTable

# So many later sequences may be admitted before one that waits for tokens; then they wait behind it.
MAX_PASSES = 8

# Prompt tokens of a step where no number is given: while more are answered than wait, and otherwise.
_CHUNK, _MOST = 64, 512


@dataclass(slots=True, frozen=True)
class Segment:
    """``length`` ids of one sequence from ``start`` on, computed in one step."""

    sequence: Sequence
    slot: int
    start: int
    length: int
    samples: bool  # the segment reaches the last id, so a next one is sampled

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(slots=True)
class Plan:
    """One step: first the slots of the admitted are prepared in this order, then one forward of all segments."""

    admitted: list[Admission] = field(default_factory=list)
    decode: list[Segment] = field(default_factory=list)  # one id each, in the order of their slots
    prefill: list[Segment] = field(default_factory=list)

    @property
    def segments(self) -> list[Segment]:
        return self.decode + self.prefill

    @property
    def sampling(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.samples]


class Scheduler:
    """Used by the engine's thread alone. A ``prefill_chunk`` of 0 is no limit, None lets the pace decide."""

    def __init__(self, slots: int, prefill_chunk: int | None, cache_tokens: int, keeps_prefixes: bool) -> None:
        chunk, most = (_CHUNK, _MOST) if prefill_chunk is None else (prefill_chunk or sys.maxsize,) * 2
        self.prefill_chunk = chunk
        self.waiting: deque[Sequence] = deque()
        self.pace = Pace(chunk, most)
        self.active: dict[Sequence, int] = {}  # in the order of admission; each one's slot
        self._slots = SlotTable(slots, cache_tokens, keeps_prefixes)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def plan(self, now: float, interval: float = 0.0) -> Plan:
        """The next step. ``interval`` paces models without weights: each sequence's next id is due one later."""
        plan = Plan()
        decoding = [sequence for sequence in self.active if sequence.num_remaining == 1]
        num_waiting = len(self.active) - len(decoding) + len(self.waiting)
        budget = self.pace.budget(len(decoding), num_waiting)
        for sequence, slot in self.active.items():
            if sequence.num_remaining > 1:
                budget -= self._prefill(plan, sequence, slot, budget, now)
            elif sequence.due_at <= now:
                plan.decode.append(Segment(sequence, slot, sequence.num_computed, 1, samples=True))
        plan.decode.sort(key=lambda segment: segment.slot)
        self._admit(plan, budget, now, interval)
        return plan

    def commit(self, plan: Plan) -> None:
        """Note that the plan's ids are computed."""
        for segment in plan.segments:
            segment.sequence.num_computed += segment.length

    def remove(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Forget a sequence that has ended; ``keep`` what it computed for prompts that begin alike."""
        if sequence in self.active:
            self._slots.release(self.active.pop(sequence), sequence, keep=keep)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def clear(self) -> list[Sequence]:
        """Forget every sequence that has a slot, and what it computed."""
        cleared = list(self.active)
        for sequence in cleared:
            self.remove(sequence, keep=False)
        return cleared

    def next_due_at(self) -> float:
        """When there is something to compute: an instant, 0 for now, infinity for never."""
        for sequence in islice(self.waiting, MAX_PASSES + 1):
            if self._slots.fits(sequence):
                return 0.0
            if sequence.num_passed >= MAX_PASSES:
                break
        return min((sequence.due_at for sequence in self.active), default=float("inf"))

    def _admit(self, plan: Plan, budget: int, now: float, interval: float) -> None:
        if budget <= 0 or not self._slots.num_free:
            return
        passed: list[Sequence] = []
        for sequence in tuple(self.waiting):
            if self._slots.fits(sequence) and not self._slots.gains_by_waiting(sequence, budget):
                self.waiting.remove(sequence)
                sequence.due_at = now + interval if interval else 0.0
                admission = self._slots.take(sequence)
                self.active[sequence] = admission.slot
                plan.admitted.append(admission)
                budget -= self._prefill(plan, sequence, admission.slot, budget, now)
                for other in passed:
                    other.num_passed += 1
            else:
                passed.append(sequence)
            if budget <= 0 or not self._slots.num_free or len(passed) > MAX_PASSES:
                return
            if any(other.num_passed >= MAX_PASSES for other in passed):
                return

    def _prefill(self, plan: Plan, sequence: Sequence, slot: int, budget: int, now: float) -> int:
        """Plan as much of a prompt as the budget allows; how much that is."""
        # Of a paced sequence the last id is left for the step in which its next one is due.
        due = sequence.due_at <= now
        length = min(budget, sequence.num_remaining - (not due))
        if length > 0:
            samples = length == sequence.num_remaining
            plan.prefill.append(Segment(sequence, slot, sequence.num_computed, length, samples))
        return max(0, length)
