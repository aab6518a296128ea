"""Which sequence is in which slot, and what the next step computes. Knows no tensors and no text.

Waiting sequences are admitted in the order they came. A step takes every decoding sequence one token further
and spends what its chunk budget allows on prompts, first come first served, so that a long prompt never
holds up others.

Decoding sequences always lie in slots 0 … n-1, so that one attention call reads them as one block without
copying:

    slot     0     1     2     3     4
             decode decode decode prefill free

A sequence that leaves is replaced by the last decoding one; prompts behind it move up. The copies of keys
and values that this needs are part of the next plan.
"""

from collections import deque
from dataclasses import dataclass, field

from generation.engine.sequence import Sequence


@dataclass(slots=True, frozen=True)
class Segment:
    """``length`` ids of one sequence from ``start`` on, computed in one step."""

    sequence: Sequence
    slot: int
    start: int
    length: int
    samples: bool  # the segment reaches the last id, so a next one is sampled


@dataclass(slots=True, frozen=True)
class Move:
    """Copy the first ``length`` positions of slot ``source`` to slot ``target``."""

    source: int
    target: int
    length: int


@dataclass(slots=True)
class Plan:
    """One step: first the moves, then one forward of all segments; ``decode[i]`` lies in slot i."""

    moves: list[Move] = field(default_factory=list)
    admitted: list[tuple[int, Sequence]] = field(default_factory=list)
    decode: list[Segment] = field(default_factory=list)
    prefill: list[Segment] = field(default_factory=list)

    @property
    def segments(self) -> list[Segment]:
        return self.decode + self.prefill

    @property
    def sampling(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.samples]


class Scheduler:
    """Used by the engine's thread alone."""

    def __init__(self, slots: int, prefill_chunk: int) -> None:
        self.slots = slots
        self.prefill_chunk = prefill_chunk
        self.waiting: deque[Sequence] = deque()
        self.active: list[Sequence] = []  # index = slot
        self._moves: list[Move] = []

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def plan(self, now: float, interval: float = 0.0) -> Plan:
        """The next step. ``interval`` paces models without weights: each sequence's next id is due one later."""
        plan = Plan(moves=self._moves)
        self._moves = []
        num_decoding = self._num_decoding()
        for slot, sequence in enumerate(self.active[:num_decoding]):
            if sequence.due_at <= now:
                plan.decode.append(Segment(sequence, slot, sequence.num_computed, 1, samples=True))
        slot, budget = num_decoding, self.prefill_chunk
        while budget > 0:
            if slot == len(self.active):
                if not self.waiting or slot == self.slots:
                    break
                sequence = self.waiting.popleft()
                sequence.due_at = now + interval if interval else 0.0
                self.active.append(sequence)
                plan.admitted.append((slot, sequence))
            sequence = self.active[slot]
            samples = sequence.due_at <= now
            # Of a paced sequence the last id is left for the step in which its next one is due.
            length = min(budget, sequence.num_remaining - (not samples))
            if length:
                samples = length == sequence.num_remaining
                plan.prefill.append(Segment(sequence, slot, sequence.num_computed, length, samples))
            budget -= length
            slot += 1
        return plan

    def commit(self, plan: Plan) -> None:
        """Note that the plan's ids are computed: all of them, before anything moves, lest a copy falls short."""
        for segment in plan.segments:
            segment.sequence.num_computed += segment.length

    def remove(self, ended: list[Sequence]) -> None:
        """Free the slots of sequences that have ended."""
        for sequence in ended:
            if sequence in self.active:
                self._vacate(self.active.index(sequence))
            elif sequence in self.waiting:
                self.waiting.remove(sequence)

    def clear(self) -> list[Sequence]:
        """Free every slot, without moving anything; the sequences that were in them."""
        cleared, self.active, self._moves = self.active, [], []
        return cleared

    def next_due_at(self) -> float:
        """When there is something to compute: an instant, 0 for now, infinity for never."""
        if self.waiting and len(self.active) < self.slots:
            return 0.0
        return min((sequence.due_at for sequence in self.active), default=float("inf"))

    def _num_decoding(self) -> int:
        for slot, sequence in enumerate(self.active):
            if sequence.num_remaining > 1:
                return slot
        return len(self.active)

    def _vacate(self, slot: int) -> None:
        last_decoding = self._num_decoding() - 1
        if slot < last_decoding:
            self._move(last_decoding, slot)
            slot = last_decoding
        for source in range(slot + 1, len(self.active)):
            self._move(source, source - 1)
        self.active.pop()

    def _move(self, source: int, target: int) -> None:
        sequence = self.active[source]
        self.active[target] = sequence
        self._moves.append(Move(source, target, sequence.num_computed))
