"""Print what was measured as a table. Each measurement runs in a process of its own, one after the other."""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.figures import Figure

NAMES = ("line", "delay", "sockets", "frames", "tick", "sampling")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all if none is named")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process is left behind
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}")
    names = options.names or NAMES
    found = {name: _here(name) for name in names} if len(names) == 1 else {name: _apart(name) for name in names}
    if options.json:
        options.json.write_text(json.dumps({"cores": os.cpu_count(), **found}, indent=2) + "\n")


def _here(name: str) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix=f"tokenline-{name}-") as folder:
        os.environ["CHATSITE_VAR"] = folder  # which the site reads at its first import
        from tests.benchmarks.stand import stand

        with stand(Path(folder)) as site:
            figures: list[Figure] = importlib.import_module(f"tests.benchmarks.{name}").measure(site)
    print(f"\n{name} ({os.cpu_count()} cores)", *(figure.line() for figure in figures), sep="\n", flush=True)
    return [figure.as_json() for figure in figures]


def _apart(name: str) -> list[dict[str, object]]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "tests.benchmarks", name, "--json", file.name]
        subprocess.run(command, check=True)
        figures: list[dict[str, object]] = json.loads(Path(file.name).read_text())[name]
    return figures


if __name__ == "__main__":
    main()
