"""From a model's spec to an engine that runs it. Imports torch only when a model with weights is loaded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from generation.engine.config import EngineConfig
from generation.engine.engine import Engine, OnEvents, OnLost
from generation.engine.errors import ModelRefused
from generation.engine.interfaces import Log
from generation.engine.mock import MockCodec, MockRunner
from generation.engine.spec import ModelSpec

_DEFAULT_CONTEXT = 4096


def load_engine(
    spec: ModelSpec,
    *,
    slots: int,
    on_events: OnEvents | None = None,
    on_lost: OnLost | None = None,
    log: Log = print,
) -> Engine:
    """An engine, not yet started. ``slots`` applies where the spec gives none. Raises what loading raises."""
    config = EngineConfig(slots=spec.slots or slots, context=spec.context or _DEFAULT_CONTEXT)
    if spec.kind == "mock":
        return Engine(MockRunner(config.context, spec.rate), MockCodec(), config, on_events, on_lost)
    for option in ("quantization", "compile"):
        if getattr(spec, option):
            raise ModelRefused(f"model {spec.name}: the option {option} is not available")
    started = time.monotonic()
    log(f"{spec.name}: loading {spec.source}")
    model, tokenizer = _load(spec, log)
    engine = Engine(model, tokenizer, config, on_events, on_lost)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    log(
        f"{spec.name}: ready after {time.monotonic() - started:.1f} s: {num_parameters / 1e6:,.0f} M parameters, "
        f"{str(model.dtype).removeprefix('torch.')} on {model.device}, "
        f"{config.slots} slots of {engine.context:,} tokens"
    )
    return engine


def _load(spec: ModelSpec, log: Log) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from generation.engine.linear import speed_up_linears

    device = spec.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype: Any = spec.dtype if spec.dtype == "auto" else getattr(torch, spec.dtype)
    options: dict[str, Any] = {"revision": spec.revision} if spec.revision else {}
    source = spec.source
    if spec.kind == "builtin":
        from generation.engine.builtin import builtin_folder

        source = str(builtin_folder(log))
        if dtype == "auto" and device == "cpu" and not _computes_bfloat16():
            dtype = torch.float32
    elif spec.kind == "gguf":
        source, options["gguf_file"] = _split_gguf(source)
    elif spec.kind == "folder":
        source = str(Path(source).expanduser())
        if not Path(source).is_dir():
            raise FileNotFoundError(f"model {spec.name}: there is no folder {source}")
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    model = model.to(device)
    speed_up_linears(model)
    return model, tokenizer


def _split_gguf(source: str) -> tuple[str, str]:
    """Folder and file; what is no file here is taken for ``owner/name/file.gguf`` of the hub."""
    path = Path(source).expanduser()
    if path.is_file():
        return str(path.parent), path.name
    parts = source.split("/")
    if len(parts) == 3 and all(parts):
        return "/".join(parts[:2]), parts[2]
    raise FileNotFoundError(f"there is no file {path}")


def _computes_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 itself; where it cannot, float32 is faster."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' own progress bars: ours are in the log."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
