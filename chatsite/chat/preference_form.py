"""The settings as people write them: each field's words, its range, and from text to value and back. No rows.

Ranges and defaults are the engine's (`generation/engine/params.py`); nothing here repeats their numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from generation import admission, conf
from generation.engine.params import (
    MAX_STOP_STRING_CHARS,
    MAX_STOP_STRINGS,
    RANGES,
    ParamsError,
    Range,
    SamplingParams,
    in_range,
)

NAMES = (*RANGES, "stop")
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(SamplingParams)}

_GROUPED = re.compile(r"-?\d{1,3}(,\d{3})+")
_ESCAPES = {"\\": "\\", "n": "\n", "t": "\t"}

_WORDS: Mapping[str, tuple[str | Promise, str | Promise]] = {
    "temperature": (
        gettext_lazy("Temperature"),
        gettext_lazy("0 takes the likeliest token each time; more is more varied."),
    ),
    "max_new_tokens": (gettext_lazy("Longest reply"), gettext_lazy("In tokens; 0 allows as many as the site does.")),
    "min_new_tokens": (gettext_lazy("Shortest reply"), gettext_lazy("In tokens.")),
    "top_p": (gettext_lazy("Top p"), gettext_lazy("Only the likeliest tokens that together reach this share.")),
    "top_k": (gettext_lazy("Top k"), gettext_lazy("Only so many of the likeliest tokens; 0 is no limit.")),
    "min_p": (gettext_lazy("Min p"), gettext_lazy("No token below this share of the likeliest one's chance.")),
    "repetition_penalty": (
        gettext_lazy("Repetition penalty"),
        gettext_lazy("Above 1 what was read or written already is less likely."),
    ),
    "presence_penalty": (
        gettext_lazy("Presence penalty"),
        gettext_lazy("Above 0 what was written already is less likely."),
    ),
    "frequency_penalty": (
        gettext_lazy("Frequency penalty"),
        gettext_lazy("The same, the more so the more often it was written."),
    ),
    "seed": (gettext_lazy("Seed"), gettext_lazy("The same seed draws the same numbers; empty draws a new one.")),
}


class BadPreferences(ValueError):
    """Nothing was changed. `errors` has a text for people by the field's name."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(f"{name}: {text}" for name, text in errors.items()))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Field:
    """A number's field on the page."""

    name: str
    label: str
    help: str
    range: str
    default: str
    keyboard: str


def number_fields() -> list[Field]:
    """In the order in which they are shown."""
    return [
        Field(
            name,
            label=str(label),
            help=str(help_text),
            range=_range_words(_range(name)),
            default=shown_number(DEFAULTS[name]),
            # Where a number may be negative, phones' keypads lack its sign.
            keyboard="text" if RANGES[name].low < 0 else "numeric" if RANGES[name].is_whole else "decimal",
        )
        for name, (label, help_text) in _WORDS.items()
    ]


def read_params(written: Mapping[str, object], *, is_foreign: bool = False) -> dict[str, Any]:
    """The value of each parameter named, None where it is empty; texts, or values as in the protocol.

    What comes from another site may be longer than this one allows. Raises BadPreferences.
    """
    params: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, value in written.items():
        try:
            params[name] = _stop(value) if name == "stop" else _number(name, value, is_foreign)
        except ParamsError as error:
            errors[name] = str(error)
    if errors:
        raise BadPreferences(errors)
    return params


def written_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Every parameter as text; what isn't set is empty."""
    return {name: shown_number(params.get(name)) for name in RANGES} | {"stop": _lines(params.get("stop") or [])}


def shown_number(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(value)


def stop_limits() -> str:
    values = {"number": MAX_STOP_STRINGS, "length": MAX_STOP_STRING_CHARS}
    return _("At most %(number)s, of %(length)s characters each.") % values


def _range(name: str, is_foreign: bool = False) -> Range:
    if name.endswith("_new_tokens") and not is_foreign:
        return Range(0, conf.max_new_tokens(), is_whole=True)
    return RANGES[name]


def _range_words(within: Range) -> str:
    values = {
        "low": shown_number(within.low),
        "high": f"{within.high:,}" if within.is_whole else shown_number(within.high),
    }
    return (_("above %(low)s, at most %(high)s") if within.above else _("%(low)s to %(high)s")) % values


def _number(name: str, value: object, is_foreign: bool) -> float | None:
    if isinstance(value, str):
        value = _number_in(value.strip(), RANGES[name].is_whole)
    if value is None:
        return None
    within = _range(name, is_foreign)
    try:
        return in_range(name, value, within.high)
    except ParamsError:
        kind = _("A whole number, please: %(range)s.") if within.is_whole else _("A number, please: %(range)s.")
        raise ParamsError(kind % {"range": _range_words(within)}) from None


def _number_in(text: str, is_whole: bool) -> object:
    """What no number is stays text."""
    if not text:
        return None
    try:
        if is_whole:
            return int(text.replace(",", "") if _GROUPED.fullmatch(text) else text)
        return float(text.replace(",", "."))
    except ValueError:
        return text


def _stop(value: object) -> list[str] | None:
    """A text has one in each line, in which \\n, \\t and \\\\ stand for a line break, a tab and a backslash."""
    if isinstance(value, str):
        lines = value.replace("\r\n", "\n").split("\n")
        value = [re.sub(r"\\([\\nt])", lambda found: _ESCAPES[found[1]], line) for line in lines if line]
    try:
        return [admission.storable(text) for text in SamplingParams(stop=value or ()).stop] or None  # type: ignore[arg-type]
    except ParamsError:
        raise ParamsError(stop_limits()) from None


def _lines(texts: list[str]) -> str:
    escaped = {char: f"\\{letter}" for letter, char in _ESCAPES.items()}
    return "\n".join(re.sub(r"[\\\n\t]", lambda found: escaped[found[0]], text) for text in texts)
