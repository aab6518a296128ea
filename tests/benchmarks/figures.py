"""What was measured: figures with their units and, where there is one, the target."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """`target` is a bound: from below if `at_least`, else from above."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def line(self) -> str:
        text = f"{self.name:<62}{_shown(self.value):>10} {self.unit:<10}"
        if self.target is None:
            return text.rstrip()
        verdict = "" if self.is_met else "  MISSED"
        return f"{text}{'≥' if self.at_least else '≤'} {_shown(self.target)}{verdict}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_met": self.is_met}


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
