"""Which models there are, as one line of text says it: ``name=source?option=value&…``, separated by blanks.

Reads the text and checks every option; loads nothing. A blank inside a path is written %20.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote

Kind = Literal["hub", "folder", "gguf", "builtin", "mock"]

BUILTIN_MODELS = ("smollm2-135m",)
DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZATIONS = ("int8",)
DEFAULT_QUEUE = "gpu"
DEFAULT_RATE = 20.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One configured model. ``options`` holds checked text; the properties below read it."""

    name: str
    source: str
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def kind(self) -> Kind:
        if self.source == "mock:":
            return "mock"
        if self.source.startswith("builtin:"):
            return "builtin"
        if self.source.endswith(".gguf"):
            return "gguf"
        if self.source.startswith(("/", "./", "../", "~")) or os.path.isdir(self.source):
            return "folder"
        return "hub"

    @property
    def queue(self) -> str:
        return self.options.get("queue", DEFAULT_QUEUE)

    @property
    def dtype(self) -> str:
        return self.options.get("dtype", "auto")

    @property
    def device(self) -> str | None:
        return self.options.get("device")

    @property
    def context(self) -> int | None:
        return int(self.options["context"]) if "context" in self.options else None

    @property
    def slots(self) -> int | None:
        return int(self.options["slots"]) if "slots" in self.options else None

    @property
    def attn(self) -> str | None:
        return self.options.get("attn")

    @property
    def quantization(self) -> str | None:
        return self.options.get("quantization")

    @property
    def revision(self) -> str | None:
        return self.options.get("revision")

    @property
    def compile(self) -> bool:
        return self.options.get("compile") == "1"

    @property
    def rate(self) -> float:
        """Tokens per second and sequence of a ``mock:`` model."""
        return float(self.options.get("rate", DEFAULT_RATE))

    @property
    def default_new_tokens(self) -> int:
        """How long a reply may grow where its parameters do not say."""
        return 64 if self.kind == "mock" else 512


def parse_models(text: str) -> tuple[ModelSpec, ...]:
    """All models of one setting; raises ValueError naming the fault."""
    specs = tuple(_parse_one(entry) for entry in text.split())
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"model {name!r} is configured twice")
    return specs


def _parse_one(entry: str) -> ModelSpec:
    name, separator, rest = entry.partition("=")
    if not separator:
        raise ValueError(f"{entry!r} is not name=source")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no model name: letters, digits, '.', '_' and '-', a letter or digit first")
    source, _, query = rest.partition("?")
    spec = ModelSpec(name, unquote(source), MappingProxyType(_parse_options(name, query)))
    _check_source(spec)
    allowed = _MOCK_OPTIONS if spec.kind == "mock" else _MODEL_OPTIONS
    for option in spec.options:
        if option not in allowed:
            kind = "mock: model" if spec.kind == "mock" else "model"
            raise ValueError(f"{kind} {name!r} has no option {option!r}; it takes {', '.join(sorted(allowed))}")
    return spec


def _parse_options(name: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        option, separator, value = pair.partition("=")
        value = unquote(value)
        if option not in _CHECKS:
            raise ValueError(f"model {name!r} has no option {option!r}; known are {', '.join(sorted(_CHECKS))}")
        if option in options:
            raise ValueError(f"model {name!r} gives option {option!r} twice")
        if not separator or not value:
            raise ValueError(f"option {option!r} of model {name!r} has no value")
        try:
            options[option] = _CHECKS[option](value)
        except ValueError as error:
            raise ValueError(f"option {option!r} of model {name!r} must be {error}, not {value!r}") from None
    return options


def _check_source(spec: ModelSpec) -> None:
    if not spec.source:
        raise ValueError(f"model {spec.name!r} has no source")
    if spec.source.startswith("mock:") and spec.source != "mock:":
        raise ValueError(f"source {spec.source!r} of model {spec.name!r} must be just mock:")
    if spec.kind == "builtin" and spec.source.removeprefix("builtin:") not in BUILTIN_MODELS:
        known = ", ".join(f"builtin:{model}" for model in BUILTIN_MODELS)
        raise ValueError(f"source {spec.source!r} of model {spec.name!r} is not built in; there is {known}")
    if spec.kind == "hub" and not _HUB_ID.fullmatch(spec.source):
        raise ValueError(
            f"source {spec.source!r} of model {spec.name!r} is none of: "
            "a hub id, a folder, a .gguf file, builtin:, mock:"
        )


def _word(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("a word of letters, digits, '.', '_' and '-'")
    return value


def _text(value: str) -> str:
    return value


def _dtype(value: str) -> str:
    if value not in DTYPES:
        raise ValueError(f"one of {', '.join(DTYPES)}")
    return value


def _quantization(value: str) -> str:
    if value not in QUANTIZATIONS:
        raise ValueError(" or ".join(QUANTIZATIONS))
    return value


def _device(value: str) -> str:
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", value):
        raise ValueError("cpu, cuda, cuda:N or mps")
    return value


def _attn(value: str) -> str:
    if value != "packed":
        raise ValueError("packed")
    return value


def _flag(value: str) -> str:
    if value.lower() not in ("0", "1", "true", "false"):
        raise ValueError("0 or 1")
    return "1" if value.lower() in ("1", "true") else "0"


def _count(low: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < low:
            raise ValueError(f"a whole number of at least {low}")
        return str(int(value))

    return check


def _rate(value: str) -> str:
    try:
        rate = float(value)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= 1_000_000:
        raise ValueError("a number above 0 and at most 1000000")
    return value


_CHECKS: dict[str, Callable[[str], str]] = {
    "queue": _word,
    "dtype": _dtype,
    "device": _device,
    "context": _count(2),
    "slots": _count(1),
    "attn": _attn,
    "quantization": _quantization,
    "revision": _text,
    "compile": _flag,
    "rate": _rate,
}
_MOCK_OPTIONS = frozenset({"queue", "context", "slots", "rate"})
_MODEL_OPTIONS = frozenset(_CHECKS) - {"rate"}
