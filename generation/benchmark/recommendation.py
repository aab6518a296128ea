"""Which concurrency a measurement recommends, and its record for the next start on the same machine.

The rule is reading speed: as many sequences as leave, while all of them are answered, 99 of 100 gaps between tokens
no longer than a reader takes for one. Gaps while prompts are read are left out: in a benchmark all begin at once,
and a reader meets few of them. Adults read English silently at 238 words a minute (Brysbaert 2019, "How many words
do we read per minute? A review and meta-analysis of reading rate", Journal of Memory and Language 109), and a token
is about three quarters of a word: 0.189 s.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from generation.engine.spec import ModelSpec

WORDS_PER_MINUTE = 238
WORDS_PER_TOKEN = 0.75
LONGEST_GAP_SECONDS = 60 * WORDS_PER_TOKEN / WORDS_PER_MINUTE


def recommend(gaps_p99: Mapping[int, float]) -> int:
    """The largest number of sequences at whose p99 gap, in seconds, a reader need not wait; at least 1."""
    return max((number for number, gap in gaps_p99.items() if gap <= LONGEST_GAP_SECONDS), default=1)


def machine() -> dict[str, Any]:
    """What decides how fast a model runs, as far as it can be told without torch."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": _gpus(),
    }


def torch_version() -> str:
    """Without importing it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def configured(spec: ModelSpec) -> str:
    """A model's source and options as text."""
    options = "&".join(f"{name}={value}" for name, value in sorted(spec.options.items()))
    return f"{spec.source}?{options}" if options else spec.source


@dataclass(frozen=True, slots=True)
class Record:
    """What was recommended, and for what."""

    concurrency: int
    model: str
    source: str
    device: str
    dtype: str
    torch: str
    machine: dict[str, Any]
    gap_p99_seconds: dict[str, float]
    measured_at: str

    def save(self, path: Path) -> None:
        """By rename: a start meanwhile reads the old one or the new one."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        os.replace(draft, path)

    def why_not(self, spec: ModelSpec | None) -> str:
        """Why it says nothing about this model here and now; empty where it does."""
        if spec is None or (self.model, self.source) != (spec.name, configured(spec)):
            return f"is about {self.model} ({self.source})"
        if self.machine != machine():
            return "was taken on another machine"
        if spec.kind != "mock" and self.torch != torch_version():
            return f"was taken with torch {self.torch}"
        return ""


def load(path: Path) -> Record | None:
    """None where there is no file, or none of ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or set(found) != {each.name for each in fields(Record)}:
        return None
    concurrency = found["concurrency"]
    return Record(**found) if type(concurrency) is int and concurrency >= 1 else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    # ARM's /proc/cpuinfo has no name, but a part's number.
    told = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {name.strip(): value.strip() for name, value in told.items()}
    return named.get("model name") or named.get("CPU part") or platform.processor()


def _gpus() -> list[str]:
    names = []
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = file.read_text().splitlines()
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return names
