"""From a model's spec to an engine that runs it. Imports torch only when a model with weights is loaded."""

import time
from pathlib import Path
from typing import Any

from generation.engine.config import EngineConfig
from generation.engine.engine import Engine, OnEvents, OnLost
from generation.engine.interfaces import Log, Runner
from generation.engine.mock import MockCodec, MockRunner
from generation.engine.progress import bars_to_log
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
    started = time.monotonic()

    def tell(text: str) -> None:
        log(f"{spec.name}: {text}")

    tell(f"loading {spec.source}")
    model, tokenizer = load_model(spec, log)
    tell(f"{_describe(model)} after {time.monotonic() - started:.1f} s")
    engine = Engine(_runner(spec, model, config, tell), tokenizer, config, on_events, on_lost)
    tell(f"ready after {time.monotonic() - started:.1f} s: {config.slots} slots of {engine.context:,} tokens")
    return engine


def load_model(spec: ModelSpec, log: Log = print) -> tuple[Any, Any]:
    """A spec's model, quantized if it says so, on its device, and its tokenizer, as transformers has them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device = spec.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype: Any = spec.dtype if spec.dtype == "auto" else getattr(torch, spec.dtype)
    if dtype == "auto" and device == "cpu" and not _computes_bfloat16():
        dtype = torch.float32
    options: dict[str, Any] = {"revision": spec.revision} if spec.revision else {}
    source = spec.source
    if spec.kind == "builtin":
        from generation.engine.builtin import builtin_folder

        source = str(builtin_folder(log))
    elif spec.kind == "gguf":
        source, options["gguf_file"] = _split_gguf(source)
    elif spec.kind == "folder":
        source = str(Path(source).expanduser())
        if not Path(source).is_dir():
            raise FileNotFoundError(f"model {spec.name}: there is no folder {source}")
    with bars_to_log(log, spec.name):
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    if spec.quantization:
        from generation.engine.quantized import quantize

        quantize(model)
    return model.to(device), tokenizer


def _runner(spec: ModelSpec, model: Any, config: EngineConfig, tell: Log) -> Runner:
    from generation.engine.linear import speed_up_linears
    from generation.engine.memory import bytes_per_token, check_room, promise
    from generation.engine.quantized import speed_up_quantized
    from generation.engine.runner import PackedRunner

    text_config = model.config.get_text_config()
    longest = getattr(text_config, "max_position_embeddings", None) or config.context
    context = min(config.context, longest)
    per_token = bytes_per_token(text_config, model.dtype.itemsize)
    tell(check_room(spec.name, config.slots, context, per_token, model.device))
    for kind, speed_up in (("int8", speed_up_quantized), ("linear", speed_up_linears)):
        if found := speed_up(model):
            tell(f"{kind} layers: {found}")
    runner = PackedRunner(model, config.slots, context)
    promise(runner, config.slots * context * per_token, model.device)
    if spec.compile:
        tell("compiling, which takes a minute or more, less once it is cached")
        started = time.monotonic()
        runner.compile()
        tell(f"compiled after {time.monotonic() - started:.1f} s")
    return runner


def _describe(model: Any) -> str:
    parameters, buffers = list(model.parameters()), list(model.buffers())
    quantized = [buffer for buffer in buffers if not buffer.is_floating_point() and buffer.dim() == 2]
    num_parameters = sum(tensor.numel() for tensor in parameters + quantized)
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in parameters + buffers)
    return (
        f"{num_parameters / 1e6:,.0f} M parameters in {num_bytes / 1e6:,.0f} MB, "
        f"{'int8 and ' if quantized else ''}{str(model.dtype).removeprefix('torch.')} on {model.device}"
    )


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
