"""Sampling parameters: their names, ranges and defaults. Knows no model, no tensors and no torch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

MAX_STOP_STRINGS = 8
MAX_STOP_STRING_CHARS = 200

# Below this the division by the temperature would leave float32's range: such a value means greedy.
_SMALLEST_TEMPERATURE = 1e-4

_LARGEST_SEED = 2**63 - 1
_LARGEST_TOP_K = 1_000_000


class ParamsError(ValueError):
    """A parameter is unknown, of the wrong type or out of range; the text names it, for people to read."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one reply is sampled. ``temperature`` 0 is greedy; 0 is no limit for ``max_new_tokens``, ``top_k``."""

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

    @classmethod
    def parse(
        cls, params: Mapping[str, object], *, max_new_tokens: int, default_new_tokens: int = 512
    ) -> "SamplingParams":
        """Check what a person sent; raises ParamsError. ``None`` values count as not given.

        ``max_new_tokens`` is the ceiling (0 in ``params`` asks for all of it); ``default_new_tokens`` applies
        where ``params`` gives none, within the ceiling.
        """
        given = {name: value for name, value in params.items() if value is not None}
        unknown = sorted(str(name) for name in given if name not in cls.__slots__)
        if unknown:
            raise ParamsError(f"unknown parameter: {', '.join(name[:40] for name in unknown[:5])}")
        new_tokens = _integer(given, "max_new_tokens", min(default_new_tokens, max_new_tokens), 0, max_new_tokens)
        new_tokens = new_tokens or max_new_tokens
        min_new_tokens = _integer(given, "min_new_tokens", 0, 0, new_tokens)
        temperature = _number(given, "temperature", 0.7, 0, 2)
        return cls(
            max_new_tokens=new_tokens,
            min_new_tokens=min_new_tokens,
            temperature=temperature if temperature >= _SMALLEST_TEMPERATURE else 0.0,
            top_k=_integer(given, "top_k", 0, 0, _LARGEST_TOP_K),
            top_p=_number(given, "top_p", 1.0, 0, 1, above=True),
            min_p=_number(given, "min_p", 0.0, 0, 1),
            repetition_penalty=_number(given, "repetition_penalty", 1.0, 0.1, 10),
            presence_penalty=_number(given, "presence_penalty", 0.0, -2, 2),
            frequency_penalty=_number(given, "frequency_penalty", 0.0, -2, 2),
            seed=_integer(given, "seed", 0, 0, _LARGEST_SEED) if "seed" in given else None,
            stop=_stop_strings(given.get("stop", ())),
        )

    def as_json(self) -> dict[str, object]:
        """The same parameters as JSON takes them; ``parse`` reads them back."""
        return {**asdict(self), "stop": list(self.stop)}


def _shown(value: object) -> str:
    """A value as an error text shows it: short, whatever was sent."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _integer(given: Mapping[str, object], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParamsError(f"{name} must be a whole number, not {_shown(value)}")
    if not low <= value <= high:
        raise ParamsError(f"{name} must be from {low} to {high:,}, not {_shown_integer(value)}")
    return value


def _shown_integer(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if abs(value) < 10**18 else ("a larger number" if value > 0 else "a smaller number")


def _number(
    given: Mapping[str, object], name: str, default: float, low: float, high: float, *, above: bool = False
) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParamsError(f"{name} must be a number, not {_shown(value)}")
    # NaN compares false with everything; Infinity is above every range.
    if not (low < value <= high if above else low <= value <= high):
        span = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        shown = _shown_integer(value) if isinstance(value, int) else _shown(value)
        raise ParamsError(f"{name} must be {span}, not {shown}")
    assert math.isfinite(value)
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
