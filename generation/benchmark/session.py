"""One measurement from loading to recommendation. Keeps what it has when it is interrupted."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from generation.benchmark import peers, report, scenes
from generation.benchmark.measure import Results, measure, warm_up
from generation.benchmark.memory import used_bytes
from generation.benchmark.ours import Tokenline
from generation.benchmark.recommendation import Record, configured, machine, recommend, torch_version
from generation.benchmark.runs import Contestant, Prompts, RunFailed
from generation.benchmark.scenes import Finding
from generation.engine import ModelSpec

COPY = "the copy for the others"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure; every option is checked already, but for what only the loaded model tells."""

    spec: ModelSpec
    numbers: tuple[int, ...]  # of sequences
    prompt_tokens: tuple[int, ...]
    num_new: int
    rounds: int
    peers: tuple[str, ...]
    scenes: bool

    @property
    def longest(self) -> int:
        return max(self.prompt_tokens) + self.num_new


class Session:
    """``run`` in one thread; ``close`` lets go of all threads, whatever happened."""

    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._results = Results()
        self._findings: list[Finding] = []
        self._contestants: list[Contestant] = []
        self._device = self._dtype = ""
        self._threads: int | None = None
        self._is_complete = False

    def run(self) -> None:
        """Load, warm up, measure. Raises RunFailed and what loading raises; KeyboardInterrupt at any instant."""
        plan = self._plan
        ours = self._load_ours()
        prompts = Prompts(ours.ids_of_text(), plan.prompt_tokens)
        self._load_peers()
        for contestant in list(self._contestants):
            try:
                warm_up(contestant, prompts, plan.numbers, self._results)
            except (RuntimeError, ValueError, TypeError) as error:
                if contestant is ours:
                    raise
                self._leave_out(contestant, error)
        self._tell(self._heading())
        measure(self._contestants, plan.numbers, plan.rounds, plan.num_new, prompts, self._results, self._tell)
        if plan.scenes:
            manager = next((each for each in self._contestants if isinstance(each, peers.ManagerPeer)), None)
            self._findings = scenes.play(ours, manager, plan.rounds, prompts, self._tell)
        self._is_complete = True

    def close(self) -> None:
        for contestant in self._contestants:
            contestant.close()

    def lines(self) -> Iterator[str]:
        """What is measured so far."""
        if not self._results.rounds:
            yield "nothing was measured"
            return
        if not self._is_complete:
            yield "not all was measured; so far:"
        names, numbers = self._names(), self._plan.numbers
        for part in (
            report.table(self._results, names, numbers),
            report.chart(self._results, names, numbers),
            map(report.scene, self._findings),
            report.memory(self._results),
        ):
            if lines := list(part):
                yield ""
                yield from lines
        if self._is_complete:
            gaps = self._gaps_p99()
            yield ""
            yield report.recommendation(recommend(gaps), gaps)

    def as_json(self) -> dict[str, Any]:
        record = self.record()
        return {
            "model": record.model,
            "source": record.source,
            "device": record.device,
            "dtype": record.dtype,
            "torch": record.torch,
            "threads": self._threads,
            "machine": record.machine,
            "measured_at": record.measured_at,
            "prompt_tokens": list(self._plan.prompt_tokens),
            "new_tokens": self._plan.num_new,
            "recommended": record.concurrency if self._is_complete else None,
            **report.as_json(self._results, self._names(), self._plan.numbers, self._findings),
        }

    def record(self) -> Record:
        gaps = self._gaps_p99()
        return Record(
            concurrency=recommend(gaps),
            model=self._plan.spec.name,
            source=configured(self._plan.spec),
            device=self._device,
            dtype=self._dtype,
            torch="" if self._plan.spec.kind == "mock" else torch_version(),
            machine=machine(),
            gap_p99_seconds={str(number): gap for number, gap in gaps.items()},
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _load_ours(self) -> Tokenline:
        plan = self._plan
        if plan.spec.kind != "mock":
            import torch  # noqa: F401
            import transformers  # noqa: F401  # not to be counted as the model's memory
        before = used_bytes()
        wanted = max(*plan.numbers, scenes.NUM_SLOTS) if plan.scenes else max(plan.numbers)
        ours = Tokenline.load(plan.spec, wanted, self._tell)
        self._contestants.append(ours)
        self._note_loading(ours.name, before)
        self._device, self._dtype = ours.device, ours.dtype
        context, slots = ours.engine.context, ours.engine.config.slots
        if plan.longest > context:
            raise RunFailed(
                f"prompts of {max(plan.prompt_tokens):,} and replies of {plan.num_new:,} tokens don't fit into a "
                f"context of {context:,}"
            )
        if plan.scenes and (context < scenes.LONGEST_TOKENS or slots < scenes.NUM_SLOTS):
            raise RunFailed(
                f"--scenes needs {scenes.NUM_SLOTS} slots and a context of {scenes.LONGEST_TOKENS}; "
                f"the model has {slots} and {context:,}"
            )
        return ours

    def _load_peers(self) -> None:
        plan = self._plan
        if not plan.peers:
            return
        before = used_bytes()
        model = peers.load_copy(plan.spec, self._tell)
        self._note_loading(COPY, before)
        slots = max(*plan.numbers, scenes.NUM_SLOTS)
        longest = max(plan.longest, scenes.LONGEST_TOKENS) if plan.scenes else plan.longest
        for key in plan.peers:
            try:
                self._contestants.append(peers.make(key, model, slots, longest))
            except (ValueError, RuntimeError, AttributeError) as error:
                self._tell(f"left out: {key}, {error}")

    def _leave_out(self, contestant: Contestant, error: Exception) -> None:
        self._tell(f"left out: {contestant.name}, {error}")
        self._contestants.remove(contestant)
        contestant.close()

    def _heading(self) -> str:
        plan = self._plan
        where = machine()
        parts = [f"{plan.spec.name} ({configured(plan.spec)})"]
        if self._device:
            import torch

            self._threads = torch.get_num_threads()
            parts.append(f"{self._dtype} on {self._device}, torch {torch_version()}, {self._threads} threads")
        parts.append(f"{where['processor']}, {where['cores']} of {os.cpu_count()} cores")
        parts += where["gpus"]
        lengths = ", ".join(map(str, plan.prompt_tokens))
        parts.append(f"prompts of {lengths} tokens, {plan.num_new} new ones, medians of {plan.rounds} rounds")
        return "; ".join(parts)

    def _names(self) -> list[str]:
        return [contestant.name for contestant in self._contestants]

    def _gaps_p99(self) -> dict[int, float]:
        found = {number: self._results.median(Tokenline.name, number) for number in self._plan.numbers}
        return {number: each.full_gap_p99_seconds for number, each in found.items() if each}

    def _note_loading(self, name: str, before: int | None) -> None:
        after = used_bytes()
        if before is not None and after is not None:
            self._results.bytes_of_loading[name] = after - before
