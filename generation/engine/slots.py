"""Which slot holds what: a running sequence, or what an ended one left behind. Knows no tensors and no text.

    slot     0           1               2                3
             sequence    kept: 600 ids   sequence         empty

The keys and values of an ended sequence stay in its slot, beside the ids they were computed from, until the slot or
the tokens are needed; the least recently used go first. A prompt that begins with the same ids computes only the
rest: it takes that slot over, or copies the common part into another one where the sequence still runs or much else
would be lost.
"""

from dataclasses import dataclass, field

from generation.engine.sequence import Sequence

# A copy of fewer ids costs as much as computing them.
_LEAST_COPIED = 8

# Who waits a step for others to compute so much loses at most as much.
_LEAST_AWAITED = 16


@dataclass(slots=True)
class Slot:
    index: int
    sequence: Sequence | None = None
    kept: list[int] = field(default_factory=list)  # of an ended sequence: the ids whose keys and values are here
    used_at: int = 0  # by the table's own clock

    def common(self, ids: list[int]) -> int:
        """How many of the first ``ids`` are computed here; never the last one, which has the next id's logits."""
        if self.sequence is None:
            return common_prefix(ids, self.kept, len(ids) - 1)
        return common_prefix(ids, self.sequence.ids, min(len(ids) - 1, self.sequence.num_computed))


@dataclass(slots=True, frozen=True)
class Admission:
    """``sequence`` gets ``slot``; the keys and values of its first ``length`` ids are those of slot ``source``."""

    sequence: Sequence
    slot: int
    source: int
    length: int


class SlotTable:
    """At most ``capacity`` tokens in all, counting what running sequences may come to and what is kept."""

    def __init__(self, slots: int, capacity: int, keeps_prefixes: bool) -> None:
        self._slots = [Slot(index) for index in range(slots)]
        self._capacity = capacity
        self._keeps_prefixes = keeps_prefixes
        self._clock = 0
        self.num_free = slots
        self._num_reserved = 0  # tokens of running sequences

    def fits(self, sequence: Sequence) -> bool:
        """Whether there is a slot, and tokens for all that the sequence may come to."""
        return self.num_free > 0 and self._num_reserved + sequence.num_reserved <= self._capacity

    def gains_by_waiting(self, sequence: Sequence, budget: int) -> bool:
        """Whether a running sequence is about to compute more of this prompt than the ``budget`` of a step allows."""
        if not self._keeps_prefixes:
            return False
        ids = sequence.ids
        running = (slot.sequence for slot in self._slots if slot.sequence is not None)
        coming = max((common_prefix(ids, other.ids, len(ids) - 1) for other in running), default=0)
        gain = coming - max(self._common(ids))
        return coming >= _LEAST_COPIED and gain >= min(budget, _LEAST_AWAITED)

    def take(self, sequence: Sequence) -> Admission:
        """Give a slot to a sequence that fits. The copies of several admissions are to be made in their order."""
        common = self._common(sequence.ids)
        free = [slot for slot in self._slots if slot.sequence is None]
        target = min(free, key=lambda slot: (bool(slot.kept), slot.used_at))
        source = max(self._slots, key=lambda slot: (common[slot.index], slot.sequence is None, slot is target))
        length = common[source.index]
        if source.sequence is None and len(source.kept) <= 2 * length:
            target = source
        elif length < _LEAST_COPIED:
            source, length = target, common[target.index]
        self._clock += 1
        source.used_at = target.used_at = self._clock
        target.sequence, target.kept = sequence, []
        sequence.num_computed = sequence.num_reused = length
        self.num_free -= 1
        self._num_reserved += sequence.num_reserved
        self._drop_what_exceeds()
        return Admission(sequence, target.index, source.index, length)

    def release(self, index: int, sequence: Sequence, *, keep: bool) -> None:
        """The sequence in this slot has ended; ``keep`` what it computed."""
        slot = self._slots[index]
        self._clock += 1
        slot.sequence, slot.used_at = None, self._clock
        slot.kept = sequence.ids[: sequence.num_computed] if keep and self._keeps_prefixes else []
        self.num_free += 1
        self._num_reserved -= sequence.num_reserved

    def _common(self, ids: list[int]) -> list[int]:
        return [slot.common(ids) if self._keeps_prefixes else 0 for slot in self._slots]

    def _drop_what_exceeds(self) -> None:
        kept = sorted((slot for slot in self._slots if slot.kept), key=lambda slot: slot.used_at)
        excess = self._num_reserved + sum(len(slot.kept) for slot in kept) - self._capacity
        for slot in kept:
            if excess <= 0:
                return
            excess -= len(slot.kept)
            slot.kept = []


def common_prefix(first: list[int], second: list[int], limit: int) -> int:
    """How many ids both begin with, ``limit`` at most. Compares halves: a slice costs far less than its ids."""
    low, high = 0, min(len(first), len(second), limit)
    if first[:high] == second[:high]:
        return high
    while high - low > 1:  # the first difference is in [low, high)
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
