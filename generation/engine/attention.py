"""Attention over a packed step: every segment attends to its own slot. Knows tensors and slots, no sequences.

A transformers model calls this function, registered under ATTENTION, for each layer instead of its own. The
running step is found per thread, since two models in one process have a thread each.

Letters: T tokens of the step · B decoding rows · H query heads · K key/value heads · G = H / K · D head size
· L positions read.
"""

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from generation.engine.kv_cache import SlotCache

ATTENTION = "tokenline_packed"


@dataclass(slots=True, frozen=True)
class PrefillSegment:
    """``length`` tokens of one prompt, at ``offset`` of the packed step and at ``start`` of their slot."""

    slot: int
    offset: int
    length: int
    start: int


@dataclass(slots=True, frozen=True)
class PackedStep:
    """What attention must know about a forward: B decoding rows in slots 0 … B-1 first, then the segments."""

    cache: SlotCache
    slots: torch.Tensor  # (T,) slot of each token
    positions: torch.Tensor  # (T,) position of each token
    num_decoding: int
    length: int  # L of the decoding rows
    prefill: tuple[PrefillSegment, ...]
    _masks: dict[tuple[int, int | None, int], torch.Tensor] = field(default_factory=dict)

    def mask(self, offset: int, rows: int, tokens: int, length: int, window: int | None, group: int) -> torch.Tensor:
        """What the tokens from ``offset`` on may read: (rows, 1, G × n, L). Made once for all layers alike."""
        key = offset, window, group
        if key not in self._masks:
            positions = self.positions[offset : offset + rows * tokens].view(rows, tokens, 1)
            columns = torch.arange(length, device=positions.device)
            mask = columns <= positions
            if window:
                mask &= columns > positions - window
            self._masks[key] = mask.repeat(1, group, 1).unsqueeze(1)
        return self._masks[key]


class _Running(threading.local):
    step: PackedStep | None = None


_running = _Running()


class running_step:
    """``with running_step(step): model(...)``."""

    def __init__(self, step: PackedStep) -> None:
        self._step = step

    def __enter__(self) -> None:
        _running.step = self._step

    def __exit__(self, *exc_info: object) -> None:
        _running.step = None


def packed_attention(
    module: Any,
    query: torch.Tensor,  # (1, H, T, D)
    key: torch.Tensor,  # (1, K, T, D)
    value: torch.Tensor,  # (1, K, T, D)
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,  # (H,) attention sinks
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Write the step's keys and values, attend per segment; (1, T, H, D), as transformers expects it."""
    step = _running.step
    if step is None:
        raise RuntimeError(f"{ATTENTION} attention works only inside the engine's own forward")
    keys, values = step.cache.write(module.layer_idx, step.slots, step.positions, key[0], value[0])
    rule = _Rule(
        step=step,
        scale=scaling if scaling is not None else query.shape[-1] ** -0.5,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    outputs: list[torch.Tensor] = []
    if step.num_decoding:
        rows = query[0, :, : step.num_decoding].transpose(0, 1).unsqueeze(2)  # (B, H, 1, D)
        outputs.append(
            rule.attend(
                rows,
                keys[: step.num_decoding, :, : step.length],
                values[: step.num_decoding, :, : step.length],
                0,
            )
        )
    for segment in step.prefill:
        end = segment.start + segment.length
        tokens = slice(segment.offset, segment.offset + segment.length)
        outputs.append(
            rule.attend(
                query[:, :, tokens],
                keys[segment.slot, None, :, :end],
                values[segment.slot, None, :, :end],
                segment.offset,
            )
        )
    # Each (rows, H, n, D) becomes (rows × n, H, D); packed again in the order of the step.
    packed = torch.cat([output.transpose(1, 2).flatten(0, 1) for output in outputs])
    return packed.unsqueeze(0), None


@dataclass(slots=True, frozen=True)
class _Rule:
    """How one layer attends."""

    step: PackedStep
    scale: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None

    def attend(
        self,
        query: torch.Tensor,  # (rows, H, n, D)
        keys: torch.Tensor,  # (rows, K, L, D)
        values: torch.Tensor,  # (rows, K, L, D)
        offset: int,  # of the first row's first token in the step
    ) -> torch.Tensor:  # (rows, H, n, D)
        rows, num_heads, num_tokens, _ = query.shape
        num_kv_heads, length = keys.shape[1], keys.shape[2]
        group = num_heads // num_kv_heads
        # Query heads that share keys become rows of one head, so that keys are never repeated.
        query = query.reshape(rows, num_kv_heads, group * num_tokens, -1)
        mask = self.step.mask(offset, rows, num_tokens, length, self.window, group)
        if self.softcap is None and self.sinks is None:
            output = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=self.scale)
        else:
            output = self._attend_plainly(query, keys, values, mask, num_tokens)
        return output.reshape(rows, num_heads, num_tokens, -1)

    def _attend_plainly(
        self,
        query: torch.Tensor,  # (rows, K, G × n, D)
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor,  # (rows, 1, G × n, L)
        num_tokens: int,
    ) -> torch.Tensor:
        """What scaled_dot_product_attention lacks: soft caps (Gemma 2) and sinks (GPT-OSS)."""
        scores = torch.matmul(query, keys.transpose(-1, -2)) * self.scale
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        if self.sinks is not None:
            num_kv_heads = query.shape[1]
            sinks = self.sinks.view(1, num_kv_heads, -1, 1).repeat_interleave(num_tokens, dim=2)  # (1, K, G × n, 1)
            scores = torch.cat([scores, sinks.expand(scores.shape[0], -1, -1, -1).to(scores.dtype)], dim=-1)
        weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
        return torch.matmul(weights[..., : keys.shape[2]], values)


AttentionInterface.register(ATTENTION, packed_attention)
