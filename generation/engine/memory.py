"""Whether the slots that are asked for fit into memory. Knows a model's shape; makes nothing itself."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generation.engine.errors import ModelRefused

# Left free for activations, logits, and whatever else the process and its neighbours need.
_LEAST_MARGIN_BYTES = 256 * 2**20
_MARGIN_SHARE = 0.05

_CGROUPS = Path("/sys/fs/cgroup")

# On a CPU a block takes memory only as it is written: what runners loaded before may still come to take.
_promised: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()


def bytes_per_token(config: Any, itemsize: int) -> int:
    """What one token's keys and values take in all layers; ``config`` is a transformers text config."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # Multi-head latent attention (DeepSeek) has keys of another size than values.
    rope, rest = getattr(config, "qk_rope_head_dim", None), getattr(config, "qk_nope_head_dim", None)
    key = rope + rest if rope and rest else head
    value = getattr(config, "v_head_dim", None) or head
    return int(config.num_hidden_layers * heads * (key + value) * itemsize)


def check_room(name: str, slots: int, context: int, per_token: int, device: Any) -> str:
    """A line of figures for the log; raises ModelRefused with them where keys and values do not fit."""
    needed = slots * context * per_token
    figures = (
        f"{slots:,} slots of {context:,} tokens need {_megabytes(needed)} for keys and values "
        f"({per_token:,} bytes a token)"
    )
    available = available_bytes(device)
    if available is None:
        return figures
    room = max(0, available - max(_LEAST_MARGIN_BYTES, int(available * _MARGIN_SHARE)))
    if needed <= room:
        return f"{figures}; {_megabytes(room)} are free on {device}"
    fitting_slots, fitting_context = room // (context * per_token), room // (slots * per_token)
    fitting = []
    if fitting_slots:
        fitting.append(f"slots={fitting_slots}")
    if fitting_context >= 2:
        fitting.append(f"context={fitting_context}")
    raise ModelRefused(
        f"model {name}: {figures}, but only {_megabytes(room)} are free on {device}; "
        + (f"{' or '.join(fitting)} would fit" if fitting else "not one token would fit")
    )


def promise(runner: Any, num_bytes: int, device: Any) -> None:
    """Count what this runner's slots may come to take against the models loaded after it, while it lives."""
    if device.type == "cpu":
        _promised[runner] = num_bytes


def available_bytes(device: Any) -> int | None:
    """Free memory of a device, None where it cannot be told."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device.type != "cpu":
        return None
    free_here = [_meminfo(), *_cgroup_limits()]
    known = [number for number in free_here if number is not None]
    return max(0, min(known) - sum(_promised.values())) if known else None


def _meminfo(path: Path = Path("/proc/meminfo")) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup_limits(root: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """What each limit on this process's control group, and on those above it, leaves free (versions 1 and 2)."""
    try:
        entries = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in entries:
        if not controllers:
            base, limit_file, usage_file, cache = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base, limit_file, usage_file = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            if base not in (folder, *folder.parents):
                break
            try:
                limit = int((folder / limit_file).read_text())
                used = int((folder / usage_file).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):  # no such group seen from here, or "max"
                continue
            yield limit - used + int(stat.get(cache, 0))


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.0f} MB"
