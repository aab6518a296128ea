"""Keys and values of all sequences, one block per layer. Knows slots and positions; not whose they are.

Letters: S slots · C context (positions per slot) · H key/value heads · D head size.
"""

import math
import mmap
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import torch


class SlotCache:
    """Memory for ``slots`` sequences of ``context`` tokens. A layer's block is made when that layer first writes."""

    def __init__(self, slots: int, context: int) -> None:
        self.slots = slots
        self.context = context
        self.keys: dict[int, torch.Tensor] = {}  # layer → (S, H, C, D)
        self.values: dict[int, torch.Tensor] = {}
        self._num_written = [0] * slots  # positions of a slot that may hold something other than zero

    @property
    def num_layers(self) -> int:
        return len(self.keys)

    def write(
        self,
        layer: int,
        slots: torch.Tensor,  # (T,)
        positions: torch.Tensor,  # (T,)
        keys: torch.Tensor,  # (H, T, D)
        values: torch.Tensor,  # (H, T, D)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one layer's new keys and values; that layer's whole blocks."""
        if layer not in self.keys:
            self.keys[layer] = self._block(keys)
            self.values[layer] = self._block(values)
        layer_keys, layer_values = self.keys[layer], self.values[layer]
        layer_keys[slots, :, positions] = keys.transpose(0, 1)
        layer_values[slots, :, positions] = values.transpose(0, 1)
        return layer_keys, layer_values

    def note_written(self, slot: int, length: int) -> None:
        self._num_written[slot] = max(self._num_written[slot], length)

    def prepare(self, slot: int, source: int, length: int) -> None:
        """Let ``slot`` hold the first ``length`` positions of slot ``source`` (it may be itself) and zeros after them:
        attention multiplies masked values by 0, and 0 × NaN would be NaN.
        """
        if source != slot and length:
            self.note_written(slot, length)
            for block in self._blocks():
                block[slot, :, :length] = block[source, :, :length]
        end = self._num_written[slot]
        if end > length:
            for block in self._blocks():
                block[slot, :, length:end] = 0
        self._num_written[slot] = length

    def _blocks(self) -> Iterator[torch.Tensor]:
        return chain(self.keys.values(), self.values.values())

    def _block(self, like: torch.Tensor) -> torch.Tensor:
        shape = (self.slots, like.shape[0], self.context, like.shape[-1])
        if like.device.type != "cpu":
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        return torch.frombuffer(_lazy_zeros(math.prod(shape) * like.dtype.itemsize), dtype=like.dtype).view(shape)


def _lazy_zeros(num_bytes: int) -> mmap.mmap:
    """Zeros to which the system gives memory only where something is written; torch would write them all."""
    memory = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A huge page holds a slot's keys of some heads at once: the first token of each would commit all.
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory
