"""The model `mock`, which does what a prompt's words ask for: `raise-in-step@5`, `die@0`, `hang@3#1`.

`KIND@POSITION` happens when that many tokens of the reply exist, in every claim of the job; with `#EPOCH` only in that
one. A worker that imports this module loads such models.
"""

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from generation.engine import Sequence as EngineSequence
from generation.engine import loading
from generation.engine.mock import MockCodec, MockRunner, MockStream
from generation.engine.scheduler import Plan, Segment

WORD = re.compile(r"^(raise-in-[a-z]+|out-of-memory|die|hang|lose-device|tell-steps)@(\d+)(?:#(\d+))?$")


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    position: int
    epoch: int | None


def faults(words: Sequence[str]) -> Iterator[Fault]:
    for word in words:
        if match := WORD.match(word):
            kind, position, epoch = match.groups()
            yield Fault(kind, int(position), int(epoch) if epoch else None)


def words_of(prompt_ids: Sequence[int]) -> list[str]:
    """The last user message's words, by the ids."""
    return cast(MockStream, MockCodec().stream(prompt_ids))._words


class FaultyRunner(MockRunner):
    _is_lost = False

    def check(self) -> None:
        if self._is_lost:
            raise RuntimeError("the device is lost on purpose")

    def run(self, plan: Plan) -> list[int | Exception]:
        for segment in plan.segments:
            for fault in self._due(segment):
                self._happen(fault, segment.sequence)
        self.check()
        results = super().run(plan)
        for number, segment in enumerate(plan.sampling):
            if any(fault.kind == "raise-in-sampling" for fault in self._due(segment)):
                results[number] = ArithmeticError("the logits are not finite")
        return results

    def _due(self, segment: Segment) -> Iterator[Fault]:
        sequence = segment.sequence
        _, epoch = cast(tuple[Any, int], sequence.identifier)
        for fault in faults(words_of(sequence.ids[: sequence.num_prompt])):
            if fault.kind == "tell-steps" or (
                fault.position == sequence.num_generated
                and (segment.samples or not fault.position)
                and fault.epoch in (None, epoch)
            ):
                yield fault

    def _happen(self, fault: Fault, sequence: EngineSequence) -> None:
        match fault.kind:
            case "raise-in-step":
                raise ArithmeticError("a step failed on purpose")
            case "out-of-memory":
                raise MemoryError("out of memory on purpose")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "lose-device":
                self._is_lost = True
            case "hang":
                threading.Event().wait()
            case "tell-steps":
                job, _ = cast(tuple[Any, int], sequence.identifier)
                print(f"step of {job} after {sequence.num_generated} tokens", flush=True)


class FaultyCodec(MockCodec):
    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        ids = super().encode(messages)
        if any(fault.kind == "raise-in-encoding" for fault in faults(words_of(ids))):
            raise ArithmeticError("encoding failed on purpose")
        return ids

    def stream(self, prompt_ids: Sequence[int]) -> "FaultyStream":
        return FaultyStream(super().stream(prompt_ids)._words)


class FaultyStream(MockStream):
    def step(self, token_id: int) -> str:
        for fault in faults(self._words):
            if fault.kind == "raise-in-detokenising" and fault.position == token_id:
                raise ArithmeticError("detokenising failed on purpose")
        return super().step(token_id)


# The loader's own way to a mock leads here.
loading.MockRunner, loading.MockCodec = FaultyRunner, FaultyCodec  # type: ignore[misc]
