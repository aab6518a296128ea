"""A model's forward as one compiled graph, the same for every step. Knows tensors; neither plans nor sequences.

Attention reads Python state of the running step, so the graph holds it as one opaque operation. The number of
tokens and that of logit rows are dynamic; both are padded to two, since a compiler takes 1 for a constant.

Letters: T tokens of the step · P tokens with padding · H query heads · K key/value heads · D head size.
"""

import os
import sysconfig
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from generation.engine.attention import packed_attention
from generation.engine.builtin import cache_folder
from generation.engine.errors import ModelRefused

OPAQUE_ATTENTION = "tokenline_packed_opaque"

_LEAST = 2


class _Running(threading.local):
    num_tokens = 0


_running = _Running()

_library = torch.library.Library("tokenline", "DEF")
_library.define(
    "attend(Tensor query, Tensor key, Tensor value, int layer, float scale, int window, float softcap, Tensor? sinks)"
    " -> Tensor"
)


def _attend(
    query: torch.Tensor,  # (1, H, P, D)
    key: torch.Tensor,  # (1, K, P, D)
    value: torch.Tensor,  # (1, K, P, D)
    layer: int,
    scale: float,
    window: int,
    softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:  # (1, P, H, D)
    count = _running.num_tokens
    output, _ = packed_attention(
        SimpleNamespace(layer_idx=layer),
        query[:, :, :count],
        key[:, :, :count],
        value[:, :, :count],
        scaling=scale,
        sliding_window=window or None,
        softcap=softcap or None,
        s_aux=sinks,
    )
    padded = F.pad(output, (0, 0, 0, 0, 0, query.shape[2] - count))
    return padded.contiguous()


def _attend_shape(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layer: int,
    scale: float,
    window: int,
    softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])


_library.impl("attend", _attend, "CompositeExplicitAutograd")
torch.library.register_fake("tokenline::attend", _attend_shape)


def opaque_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """``packed_attention`` as one operation that no compiler looks into."""
    scale = float(scaling if scaling is not None else query.shape[-1] ** -0.5)
    output = torch.ops.tokenline.attend.default(
        query, key, value, module.layer_idx, scale, sliding_window or 0, float(softcap or 0.0), s_aux
    )
    return output, None


AttentionInterface.register(OPAQUE_ATTENTION, opaque_attention)


class CompiledForward:
    """Called like the model, with ``running_step`` entered; compiles at its first call, which takes a minute or so."""

    def __init__(self, model: Any) -> None:
        _keep_cache()
        if model.device.type == "cpu":
            _check_compiler()
        # Graphs of another model of the same class do not count towards this one's limit.
        self._compiled = torch.compile(model, fullgraph=True, isolate_recompiles=True)

    def __call__(
        self,
        *,
        input_ids: torch.Tensor,  # (1, T)
        position_ids: torch.Tensor,  # (1, T)
        logits_to_keep: torch.Tensor | None = None,  # (n,)
        **options: Any,
    ) -> Any:
        _running.num_tokens = input_ids.shape[1]
        if logits_to_keep is not None:
            count = logits_to_keep.shape[0]
            options["logits_to_keep"] = _padded(logits_to_keep)
        output = self._compiled(input_ids=_padded(input_ids), position_ids=_padded(position_ids), **options)
        if logits_to_keep is not None:
            output.logits = output.logits[:, :count]
        return output


def _padded(numbers: torch.Tensor) -> torch.Tensor:
    """The last dimension, at least two long, and dynamic: a model that makes it a constant is an error."""
    missing = _LEAST - numbers.shape[-1]
    padded = F.pad(numbers, (0, missing)) if missing > 0 else numbers
    torch._dynamo.mark_dynamic(padded, padded.dim() - 1)
    return padded


def _keep_cache() -> None:
    """Let what is compiled outlive this process, apart for versions of PyTorch and kinds of processors."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # PyTorch itself sets the variable to its default, a folder of temporary files.
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, os.path.abspath(default_cache_dir())):
        kind = torch.backends.cpu.get_cpu_capability().lower()
        folder = cache_folder() / "compiled" / f"torch-{torch.__version__}-{kind}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def _check_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        raise ModelRefused(
            "compile=1 needs a C++ compiler and there is none: install g++ (Debian and Ubuntu: apt install g++), "
            "name another one in CXX, or leave compile=1 out"
        ) from error
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if not header.is_file():
        raise ModelRefused(
            f"compile=1 needs Python's headers and {header} is not there: install them (Debian and Ubuntu: "
            "apt install python3-dev), or leave compile=1 out"
        )
