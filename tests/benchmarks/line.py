"""Submits and claims per second, and what 100,000 waiting jobs add to the cost of each."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from chatsite.local.ports import LOOPBACK
from tests import postgresql
from tests.benchmarks.figures import Figure
from tests.benchmarks.stand import Stand, python
from tests.environment import ROOT

SIZES = (0, 1_000, 100_000)
BATCH = 120
NAME = "tokenline"


class Line:
    """A process with a database of its own that holds so many waiting jobs."""

    def __init__(self, folder: Path, size: int, num_threads: int, database_url: str) -> None:
        folder.mkdir()
        models = "first=mock: second=mock: third=mock:"
        self._stand = Stand(folder, GENERATION_MODELS=models, DATABASE_URL=database_url)
        self._process = subprocess.Popen(
            python("tests.benchmarks.line_process", str(size), str(num_threads)),
            cwd=ROOT,
            env=self._stand.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("ready")

    def ask(self, *words: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._stand.close()


def measure(site: Stand, *, rounds: int = 9, sizes: tuple[int, ...] = SIZES) -> list[Figure]:
    figures = []
    with contextlib.ExitStack() as stack:
        lines = {size: _opened(stack, site.folder / f"sqlite-{size}", size, 1, "") for size in sizes}
        figures += _measure("SQLite", lines, rounds)
    with contextlib.ExitStack() as stack:
        urls = stack.enter_context(_databases(len(sizes)))
        lines = {
            size: _opened(stack, site.folder / f"postgresql-{size}", size, 4, url)
            for size, url in zip(sizes, urls, strict=True)
        }
        figures += _measure("PostgreSQL", lines, rounds, claims_target=450)
        anew = [BATCH / lines[sizes[1]].ask("claim-anew", BATCH) for _ in range(3)]
        figures.append(Figure("PostgreSQL, claims on a new connection each", median(anew), "1/s"))
    return figures


def _opened(stack: contextlib.ExitStack, folder: Path, size: int, num_threads: int, url: str) -> Line:
    line = Line(folder, size, num_threads, url)
    stack.callback(line.close)
    return line


@contextlib.contextmanager
def _databases(number: int) -> Iterator[list[str]]:
    import psycopg

    with postgresql.cluster(NAME, NAME, f"{NAME}0") as cluster:
        address = f"postgresql://{NAME}:{NAME}@{LOOPBACK}:{cluster.port}/"
        with psycopg.connect(f"{address}{NAME}0", autocommit=True) as connection:
            for index in range(1, number):
                connection.execute(f"CREATE DATABASE {NAME}{index}")  # type: ignore[arg-type]
        yield [f"{address}{NAME}{index}" for index in range(number)]


def _measure(name: str, lines: dict[int, Line], rounds: int, claims_target: float | None = None) -> list[Figure]:
    """The sizes take turns in each round, so that what else the machine does hits all of them."""
    seconds: dict[tuple[str, int], list[float]] = {(act, size): [] for act in ("submit", "claim") for size in lines}
    for number in range(rounds + 1):
        for act in ("submit", "claim"):
            for size, line in lines.items():
                took = line.ask(act, BATCH)
                if number:  # the first round warms caches and connections
                    seconds[act, size].append(took / BATCH)
        for line in lines.values():
            line.ask("settle")
    figures = []
    for (act, size), measured in seconds.items():
        target = claims_target if act == "claim" else None
        figures.append(Figure(f"{name}, {act}s at {size:,} rows", 1 / median(measured), "1/s", target, at_least=True))
    small, large = sorted(lines)[-2:]
    for act in ("submit", "claim"):
        pairs = zip(seconds[act, large], seconds[act, small], strict=True)
        ratio = median(many / few for many, few in pairs)
        figures.append(Figure(f"{name}, {act} at {large:,} rows / at {small:,}", ratio, "×", 1.2))
    return figures
