"""Sampling parameters: their names, ranges and defaults. Knows no model, no tensors and no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

MAX_STOP_STRINGS = 8
MAX_STOP_STRING_CHARS = 200

# Below this the division by the temperature would leave float32's range: such a value means greedy.
_SMALLEST_TEMPERATURE = 1e-4

_LARGEST_COUNT = 2**31 - 1
_LARGEST_BIAS = 100


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high``, both included but for ``above``, where ``low`` itself is too little."""

    low: float
    high: float
    is_whole: bool = False
    above: bool = False


RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "max_new_tokens": Range(0, _LARGEST_COUNT, is_whole=True),
        "min_new_tokens": Range(0, _LARGEST_COUNT, is_whole=True),
        "temperature": Range(0, 2),
        "top_k": Range(0, 1_000_000, is_whole=True),
        "top_p": Range(0, 1, above=True),
        "min_p": Range(0, 1),
        "repetition_penalty": Range(0.1, 10),
        "presence_penalty": Range(-2, 2),
        "frequency_penalty": Range(-2, 2),
        "seed": Range(0, 2**63 - 1, is_whole=True),
    }
)
"""Of every parameter that is a number. What bounds the new tokens further, a ceiling or each other, comes on top."""

# For code that uses the engine; whoever sends parameters as JSON cannot give them.
_FOR_CODE = ("ignore_eos", "logit_bias")


class ParamsError(ValueError):
    """A parameter is unknown, of the wrong type or out of range; the text names it, for people to read."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one reply is sampled. Raises ParamsError.

    ``temperature`` 0 is greedy; 0 is no limit for ``max_new_tokens``, ``top_k``. With ``ignore_eos`` the model's
    ends are ids like others, and with ``logit_bias`` the ids it names get so much added to their logits.
    """

    max_new_tokens: int = 512
    min_new_tokens: int = 0
    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        longest = self.max_new_tokens or _LARGEST_COUNT
        checked: dict[str, object] = {
            name: None if name == "seed" and self.seed is None else in_range(name, getattr(self, name))
            for name in RANGES
        } | {
            "min_new_tokens": in_range("min_new_tokens", self.min_new_tokens, longest),
            "stop": _stop_strings(self.stop),
            "ignore_eos": _boolean("ignore_eos", self.ignore_eos),
            "logit_bias": _biases(self.logit_bias),
        }
        if self.temperature < _SMALLEST_TEMPERATURE:
            checked["temperature"] = 0.0
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def parse(
        cls, params: Mapping[str, object], *, max_new_tokens: int, default_new_tokens: int = 512
    ) -> "SamplingParams":
        """Check what a person sent; raises ParamsError. ``None`` values count as not given.

        ``max_new_tokens`` is the ceiling (0 in ``params`` asks for all of it); ``default_new_tokens`` applies
        where ``params`` gives none, within the ceiling.
        """
        given = {name: value for name, value in params.items() if value is not None}
        unknown = sorted(str(name) for name in given if name not in cls._sendable())
        if unknown:
            raise ParamsError(f"unknown parameter: {', '.join(name[:40] for name in unknown[:5])}")
        asked = given.pop("max_new_tokens", min(default_new_tokens, max_new_tokens))
        new_tokens = in_range("max_new_tokens", asked, max_new_tokens) or max_new_tokens
        return cls(max_new_tokens=new_tokens, **given)  # type: ignore[arg-type]

    @classmethod
    def _sendable(cls) -> list[str]:
        return [name for name in cls.__slots__ if name not in _FOR_CODE]

    def check_ids(self, vocab_size: int | None) -> None:
        """Raises ParamsError where an id is none of a vocabulary of that size."""
        foreign = [token_id for token_id in self.logit_bias if vocab_size is not None and token_id >= vocab_size]
        if foreign:
            raise ParamsError(f"logit_bias holds id {_shown_integer(foreign[0])}; this model has {vocab_size:,} ids")

    def as_json(self) -> dict[str, object]:
        """What may be sent as JSON, which ``parse`` reads back."""
        return {name: getattr(self, name) for name in self._sendable()} | {"stop": list(self.stop)}


def _shown(value: object) -> str:
    """A value as an error text shows it: short, whatever was sent."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ParamsError(f"{name} must be true or false, not {_shown(value)}")
    return value


def in_range(name: str, value: object, high: float | None = None) -> float:
    """The checked number; a ``high`` bounds it further."""
    within = RANGES[name] if high is None else replace(RANGES[name], high=high)
    if within.is_whole:
        return _integer(name, value, int(within.low), int(within.high))
    return _number(name, value, within.low, within.high, above=within.above)


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParamsError(f"{name} must be a whole number, not {_shown(value)}")
    if not low <= value <= high:
        raise ParamsError(f"{name} must be from {low} to {high:,}, not {_shown_integer(value)}")
    return value


def _shown_integer(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if abs(value) < 10**18 else ("a larger number" if value > 0 else "a smaller number")


def _number(name: str, value: object, low: float, high: float, *, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParamsError(f"{name} must be a number, not {_shown(value)}")
    # NaN compares false with everything; Infinity is above every range.
    if not (low < value <= high if above else low <= value <= high):
        shown = _shown_integer(value) if isinstance(value, int) else _shown(value)
        if above:
            raise ParamsError(f"{name} must be above {low:g} and at most {high:g}, not {shown}")
        raise ParamsError(f"{name} must be from {low:g} to {high:g}, not {shown}")
    return float(value)


def _stop_strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ParamsError(f"stop must be a list of strings, not {_shown(value)}")
    if len(value) > MAX_STOP_STRINGS:
        raise ParamsError(f"stop takes at most {MAX_STOP_STRINGS} strings, not {len(value)}")
    for text in value:
        if not isinstance(text, str):
            raise ParamsError(f"stop must be a list of strings, not of {_shown(text)}")
        if not text:
            raise ParamsError("stop must not hold an empty string")
        if len(text) > MAX_STOP_STRING_CHARS:
            raise ParamsError(f"a stop string has at most {MAX_STOP_STRING_CHARS} characters, not {len(text):,}")
    return tuple(value)


def _biases(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise ParamsError(f"logit_bias must map ids to numbers, not be {_shown(value)}")
    return {
        _integer("an id in logit_bias", token_id, 0, _LARGEST_COUNT): _number(
            "logit_bias", bias, -_LARGEST_BIAS, _LARGEST_BIAS
        )
        for token_id, bias in value.items()
    }
