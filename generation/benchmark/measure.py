"""All contestants in one interleaved run. Keeps whatever is measured, so that an interrupted run tells it too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from generation.benchmark.memory import used_bytes
from generation.benchmark.runs import Contestant, Figures, Prompts, figures

WARM_UP_TOKENS = 3


@dataclass(slots=True)
class Results:
    """Figures of each round by contestant and number of sequences, and the bytes that a contestant's runs added."""

    rounds: dict[str, dict[int, list[Figures]]] = field(default_factory=dict)
    bytes_of_loading: dict[str, int] = field(default_factory=dict)
    bytes_of_running: dict[str, int] = field(default_factory=dict)

    def median(self, name: str, number: int) -> Figures | None:
        found = self.rounds.get(name, {}).get(number)
        if not found:
            return None
        return Figures(
            tokens_per_second=median(each.tokens_per_second for each in found),
            first_token_seconds=median(each.first_token_seconds for each in found),
            gap_p50_seconds=median(each.gap_p50_seconds for each in found),
            gap_p99_seconds=median(each.gap_p99_seconds for each in found),
            full_gap_p99_seconds=median(each.full_gap_p99_seconds for each in found),
        )

    def ratio(self, name: str, peer: str, number: int) -> float | None:
        """Tokens/s of one to another's: the median of each round's ratio, since noise hits both of a round."""
        pairs = zip(self._speeds(name, number), self._speeds(peer, number), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs]
        return median(ratios) if ratios else None

    def _speeds(self, name: str, number: int) -> list[float]:
        return [each.tokens_per_second for each in self.rounds.get(name, {}).get(number, [])]


def warm_up(contestant: Contestant, prompts: Prompts, numbers: Sequence[int], results: Results) -> None:
    """First calls allocate and choose; they are not measured. Raises RunFailed."""
    before = used_bytes()
    for number in sorted({min(numbers), max(numbers)}):
        contestant.run(prompts.requests(number, WARM_UP_TOKENS))
    _note_bytes(results.bytes_of_running, contestant.name, before)


def measure(
    contestants: Sequence[Contestant],
    numbers: Sequence[int],
    rounds: int,
    num_new: int,
    prompts: Prompts,
    results: Results,
    tell: Callable[[str], None],
) -> None:
    """Fill ``results``. Rounds alternate over numbers of sequences and contestants; each begins with another one."""
    for index in range(rounds):
        for number in numbers:
            requests = prompts.requests(number, num_new)
            speeds = []
            first = index % len(contestants)
            for contestant in [*contestants[first:], *contestants[:first]]:
                before = used_bytes()
                found = figures(contestant.run(requests))
                _note_bytes(results.bytes_of_running, contestant.name, before)
                results.rounds.setdefault(contestant.name, {}).setdefault(number, []).append(found)
                speeds.append(f"{contestant.name} {found.tokens_per_second:.1f}")
            tell(f"round {index + 1} of {rounds}, {number} at a time, tokens/s: {', '.join(speeds)}")


def _note_bytes(added: dict[str, int], name: str, before: int | None) -> None:
    after = used_bytes()
    if before is not None and after is not None:
        added[name] = added.get(name, 0) + after - before
