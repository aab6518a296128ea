"""Attention over a packed step: every segment attends to its own slot. Knows tensors and slots, no sequences.

A transformers model calls this function, registered under ATTENTION, for each layer instead of its own. The
running step is found per thread, since two models in one process have a thread each.

Letters: T tokens of the step · R rows of a part · n tokens of each row · H query heads · K key/value heads
· G = H / K · D head size · L positions read.
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
class Part:
    """``rows`` neighbouring slots from ``slot`` on with ``tokens`` tokens each, at ``offset`` of the packed step.

    A chunk of a prompt is one row, decoding rows have one token each. ``shortest`` and ``longest`` positions are in
    use in these slots, with the step's own.
    """

    offset: int
    slot: int
    rows: int
    tokens: int
    shortest: int
    longest: int


@dataclass(slots=True, frozen=True)
class PackedStep:
    """What attention must know about a forward; the parts hold its tokens in their order."""

    cache: SlotCache
    slots: torch.Tensor  # (T,) slot of each token
    positions: torch.Tensor  # (T,) position of each token
    parts: tuple[Part, ...]
    _masks: dict[tuple[int, int, int], torch.Tensor] = field(default_factory=dict)

    def columns(self, part: Part, window: int | None) -> range:
        """The positions of its slots that any token of a part may read."""
        first = part.shortest - part.tokens + 1 - window if window else 0
        return range(max(0, first), part.longest)

    def mask(self, part: Part, window: int | None, group: int, dtype: torch.dtype) -> torch.Tensor | None:
        """What is added to a part's scores, (R, 1, G × n, L), made once for all layers alike; None: nothing."""
        if part.tokens == 1 and part.shortest == part.longest:
            return None
        key = part.offset, window or 0, group
        if key not in self._masks:
            end = part.offset + part.rows * part.tokens
            positions = self.positions[part.offset : end].view(part.rows, part.tokens, 1)
            columns = self.columns(part, window)
            read = torch.arange(columns.start, columns.stop, device=positions.device)
            hidden = read > positions  # (R, n, L)
            if window:
                hidden |= read <= positions - window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, float("-inf"))
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
    outputs = [rule.attend(query[0], keys, values, part) for part in step.parts]
    packed = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
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
        query: torch.Tensor,  # (H, T, D)
        keys: torch.Tensor,  # (S, K, C, D), the cache's blocks
        values: torch.Tensor,
        part: Part,
    ) -> torch.Tensor:  # (R × n, H, D)
        num_heads, num_kv_heads = query.shape[0], keys.shape[1]
        group = num_heads // num_kv_heads
        columns = self.step.columns(part, self.window)
        slots = slice(part.slot, part.slot + part.rows)
        keys = keys[slots, :, columns.start : columns.stop]  # (R, K, L, D)
        values = values[slots, :, columns.start : columns.stop]
        query = query[:, part.offset : part.offset + part.rows * part.tokens]  # (H, R × n, D)
        query = query.unflatten(1, (part.rows, part.tokens)).transpose(0, 1)  # (R, H, n, D)
        # Query heads that share keys become rows of one head, so that keys are never repeated.
        query = query.reshape(part.rows, num_kv_heads, group * part.tokens, -1)
        mask = self.step.mask(part, self.window, group, query.dtype)
        if self.softcap is None and self.sinks is None:
            output = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=self.scale)
        else:
            output = self._attend_plainly(query, keys, values, mask, part.tokens)
        return output.reshape(part.rows, num_heads, part.tokens, -1).transpose(1, 2).flatten(0, 1)

    def _attend_plainly(
        self,
        query: torch.Tensor,  # (R, K, G × n, D)
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,  # (R, 1, G × n, L)
        num_tokens: int,
    ) -> torch.Tensor:
        """What scaled_dot_product_attention lacks: soft caps (Gemma 2) and sinks (GPT-OSS)."""
        scores = torch.matmul(query, keys.transpose(-1, -2)) * self.scale
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if mask is not None:
            scores = scores + mask
        if self.sinks is not None:
            num_kv_heads = query.shape[1]
            sinks = self.sinks.view(1, num_kv_heads, -1, 1).repeat_interleave(num_tokens, dim=2)  # (1, K, G × n, 1)
            scores = torch.cat([scores, sinks.expand(scores.shape[0], -1, -1, -1).to(scores.dtype)], dim=-1)
        weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
        return torch.matmul(weights[..., : keys.shape[2]], values)


AttentionInterface.register(ATTENTION, packed_attention)
