"""`manage.py benchmark`: how fast a model answers on this machine, beside other ways to run it.

Needs no database, Redis or site. What it recommends is kept for the next `manage.py up` on this machine.
"""

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from generation import conf
from generation.benchmark import peers
from generation.benchmark.session import Plan, Session
from generation.engine import ModelSpec

SEQUENCES = (1, 2, 4, 8, 16)
PROMPT_TOKENS = (34, 41, 48, 55)
INTERRUPTED = 130

FAILURES = (ValueError, OSError, RuntimeError, ImportError)
"""What loading and running raise about a model, as for `ModelRefused` and `RunFailed`."""


class Command(BaseCommand):
    help = "Measure a model's speed on this machine at several numbers of sequences and recommend a concurrency."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        keys = ", ".join(peer.key for peer in peers.PEERS)
        parser.add_argument("--model", metavar="NAME", help="one of GENERATION_MODELS (default: the default model)")
        parser.add_argument(
            "--sequences",
            type=_numbers(1),
            metavar="N,…",
            help=f"how many at the same time (default: {_listed(SEQUENCES)}, as far as the model's slots go)",
        )
        parser.add_argument(
            "--prompt-tokens",
            type=_numbers(1),
            default=PROMPT_TOKENS,
            metavar="N,…",
            help=f"lengths of prompts, dealt out in turn (default: {_listed(PROMPT_TOKENS)})",
        )
        parser.add_argument(
            "--new-tokens", type=_number(2), default=24, metavar="N", help="length of each reply (default: 24)"
        )
        parser.add_argument("--rounds", type=_number(1), default=3, metavar="N", help="of which the medians are told")
        parser.add_argument(
            "--peers", default="", metavar="NAME,…", help=f"of {keys}; or none (default: all that can run here)"
        )
        parser.add_argument(
            "--scenes", action="store_true", help="also eight long contexts, a long prompt that joins, a second turn"
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
        parser.add_argument("--no-save", action="store_true", help="don't keep what is recommended for `manage.py up`")

    def handle(self, *args: Any, **options: Any) -> None:
        spec = _spec(options["model"])
        if options["scenes"] and spec.kind == "mock":
            raise CommandError(f"model {spec.name} is a mock, and a mock computes nothing: leave --scenes out")
        plan = Plan(
            spec=spec,
            numbers=_sequences(options["sequences"], spec),
            prompt_tokens=options["prompt_tokens"],
            num_new=options["new_tokens"],
            rounds=options["rounds"],
            peers=self._peers(options["peers"], spec),
            scenes=options["scenes"],
        )
        output: Path | None = options["json"]
        if output is not None and not output.parent.is_dir():
            raise CommandError(f"--json: there is no folder {output.parent}")
        session = Session(plan, self._tell)
        failure: BaseException | None = None
        try:
            session.run()
        except (KeyboardInterrupt, *FAILURES) as error:
            failure = error
        finally:
            session.close()
        for line in session.lines():
            self._tell(line)
        if output is not None:
            text = json.dumps(session.as_json() | {"complete": failure is None}, indent=2, ensure_ascii=False)
            output.write_text(text + "\n", encoding="utf-8")
        if isinstance(failure, KeyboardInterrupt):
            self._tell("Interrupted.")
            raise SystemExit(INTERRUPTED)
        if failure is not None:
            raise CommandError(f"{spec.name}: {failure}") from failure
        record = session.record()
        path = conf.benchmark_file()
        if path is not None and not options["no_save"]:
            record.save(path)
            self._tell(f"kept in {path}, for `manage.py up` on this machine")

    def _tell(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _peers(self, text: str, spec: ModelSpec) -> tuple[str, ...]:
        known = [peer.key for peer in peers.PEERS]
        if text == "none":
            return ()
        if spec.kind == "mock":
            if text:
                raise CommandError(f"model {spec.name} is a mock: nothing else can run it; leave --peers out")
            return ()
        named = tuple(dict.fromkeys(text.split(","))) if text else ()
        for key in named:
            if key not in known:
                raise CommandError(f"--peers: there is no {key!r}; there are {', '.join(known)}, or none")
            if reason := peers.missing(key):
                raise CommandError(f"--peers: {key} can't run here: {reason}")
        if named:
            return named
        for key in known:
            if reason := peers.missing(key):
                self._tell(f"left out: {key}, {reason}")
        return tuple(key for key in known if not peers.missing(key))


def _spec(name: str | None) -> ModelSpec:
    models = conf.models()
    if not models:
        raise CommandError("GENERATION_MODELS names no model.")
    name = name or conf.default_model()
    if name not in models:
        raise CommandError(f"There is no model {name!r}; GENERATION_MODELS has {', '.join(models)}.")
    return models[name]


def _sequences(given: tuple[int, ...] | None, spec: ModelSpec) -> tuple[int, ...]:
    slots = spec.slots
    if given is None:
        fitting = tuple(number for number in SEQUENCES if slots is None or number <= slots)
        return fitting
    if slots is not None and max(given) > slots:
        raise CommandError(f"--sequences: {max(given)} is more than the {slots} slots of model {spec.name}")
    return given


def _number(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise ArgumentTypeError(f"{value} is less than {least}")
        return value

    return convert


def _numbers(least: int) -> Callable[[str], tuple[int, ...]]:
    def convert(text: str) -> tuple[int, ...]:
        return tuple(map(_number(least), text.split(",")))

    return convert


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
