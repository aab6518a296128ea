"""Typed readers of the environment, which fail loudly with the variable's name.

What the environment doesn't set is taken from `local.env` in the folder `CHATSITE_VAR` (default `var`), which
`manage.py up` writes; so every other command in that folder finds the running site.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")

VAR = Path(os.environ.get("CHATSITE_VAR") or "var").resolve()


def _local() -> dict[str, str]:
    try:
        lines = (VAR / "local.env").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


_LOCAL = _local()
_names: set[str] = {"CHATSITE_VAR"}


def names_read() -> frozenset[str]:
    """Every variable that was asked for so far, so all of the site's once settings are loaded."""
    return frozenset(_names)


def _read(name: str, default: T, convert: Callable[[str], T]) -> T:
    _names.add(name)
    raw = os.environ.get(name, _LOCAL.get(name, ""))
    if raw == "":
        return default
    try:
        return convert(raw)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={raw!r}: {error}") from None


def text(name: str, default: str = "") -> str:
    return _read(name, default, str)


def flag(name: str, default: bool = False) -> bool:
    def convert(raw: str) -> bool:
        words = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }
        if raw.lower() not in words:
            raise ValueError("must be true or false")
        return words[raw.lower()]

    return _read(name, default, convert)


def names(name: str) -> list[str]:
    """A list, separated by commas."""
    return [part.strip() for part in text(name).split(",") if part.strip()]


def integer(name: str, default: int, *, minimum: int = 1) -> int:
    def convert(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if value < minimum:
            raise ValueError(f"must be at least {minimum}")
        return value

    return _read(name, default, convert)


def seconds(name: str, default: float | None, *, minimum: float = 0.0) -> float | None:
    def convert(raw: str) -> float:
        try:
            value = float(raw)
        except ValueError:
            raise ValueError("must be a number of seconds") from None
        if not minimum <= value < float("inf"):
            raise ValueError(f"must be a number of seconds, at least {minimum:g}")
        return value

    return _read(name, default, convert)


def checked(name: str, default: str, check: Callable[[str], object]) -> str:
    """Text that `check` accepts; a ValueError of it is reported with the variable's name."""

    def convert(raw: str) -> str:
        check(raw)
        return raw

    return _read(name, default, convert)
