"""Scenes beside the table: long contexts, a long prompt that joins, a second turn. Each gives ratios."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from generation.benchmark.runs import Contestant, Prompts, Request, RunFailed, Stream, gaps_between

NUM_SLOTS = 8
LONGEST_TOKENS = 700

CONTEXT_TOKENS, CONTEXT_NEW = 540, 16
READERS, READER_TOKENS, READER_NEW, JOIN_AFTER = 4, 40, 64, 8
JOINING_TOKENS, JOINING_NEW = 500, 4
TURN_TOKENS, TURN_NEW, QUESTION_TOKENS = 578, 20, 38


@dataclass(frozen=True, slots=True)
class Finding:
    """A duration beside another one, in seconds. Medians of the rounds, the ratio too."""

    name: str
    seconds: float
    beside_seconds: float | None
    ratio: float | None


def play(
    ours: Contestant, manager: Contestant | None, rounds: int, prompts: Prompts, tell: Callable[[str], None]
) -> list[Finding]:
    """All scenes, rounds alternating over the contestants. Raises RunFailed."""
    both = [ours] if manager is None else [ours, manager]
    steps: dict[str, list[float]] = {each.name: [] for each in both}
    normal: dict[str, list[float]] = {each.name: [] for each in both}
    worst: dict[str, list[float]] = {each.name: [] for each in both}
    joining: dict[str, list[float]] = {each.name: [] for each in both}
    first: dict[str, list[float]] = {each.name: [] for each in both}
    second: dict[str, list[float]] = {each.name: [] for each in both}
    for index in range(rounds):
        long = [Request(prompts.of(CONTEXT_TOKENS), CONTEXT_NEW) for _ in range(NUM_SLOTS)]
        readers = [Request(prompts.of(READER_TOKENS), READER_NEW) for _ in range(READERS)]
        late = Request(prompts.of(JOINING_TOKENS), JOINING_NEW, after=JOIN_AFTER)
        opening = Request(prompts.of(TURN_TOKENS), TURN_NEW)
        question = prompts.of(QUESTION_TOKENS)
        for each in both:
            steps[each.name].append(_step(each.run(long)))
            *read, joined = each.run([*readers, late])
            normal[each.name].append(_gap_before(read, joined))
            worst[each.name].append(_worst_gap(read, joined))
            joining[each.name].append(joined.first_token_seconds)
            (turn,) = each.run([opening])
            (next_turn,) = each.run([Request((*opening.prompt, *turn.ids, *question), TURN_NEW)])
            first[each.name].append(turn.first_token_seconds)
            second[each.name].append(next_turn.first_token_seconds)
        tell(f"scenes, round {index + 1} of {rounds}")

    def beside_manager(name: str, found: dict[str, list[float]]) -> Finding:
        return _finding(name, found[ours.name], None if manager is None else found[manager.name])

    return [
        beside_manager(f"a step of {NUM_SLOTS} contexts of {CONTEXT_TOKENS} tokens, beside the manager's", steps),
        *(
            _finding(
                f"{each.name}: longest gap of {READERS} while {JOINING_TOKENS} tokens join, beside the normal one",
                worst[each.name],
                normal[each.name],
            )
            for each in both
        ),
        beside_manager(f"the first token of those {JOINING_TOKENS}, beside the manager's", joining),
        *(
            _finding(
                f"{each.name}: the second turn's first token, beside the first turn's",
                second[each.name],
                first[each.name],
            )
            for each in both
        ),
    ]


def _finding(name: str, values: Sequence[float], beside: Sequence[float] | None) -> Finding:
    if beside is None:
        return Finding(name, median(values), None, None)
    ratios = [value / other for value, other in zip(values, beside, strict=True)]
    return Finding(name, median(values), median(beside), median(ratios))


def _step(streams: Sequence[Stream]) -> float:
    """Between two tokens once all sequences have begun."""
    begun = max(stream.arrivals[0] for stream in streams)
    return median(_gaps(streams, begun, float("inf")))


def _gap_before(read: Sequence[Stream], joined: Stream) -> float:
    begun = max(stream.arrivals[0] for stream in read)
    return median(_gaps(read, begun, joined.submitted_at))


def _worst_gap(read: Sequence[Stream], joined: Stream) -> float:
    """Of gaps that overlap the time from the joining prompt's submission to its first token."""
    return max(_gaps(read, joined.submitted_at, joined.arrivals[0], whole=False))


def _gaps(streams: Sequence[Stream], start: float, end: float, *, whole: bool = True) -> list[float]:
    found = gaps_between(streams, start, end, whole=whole)
    if not found:
        raise RunFailed("the sequences of a scene did not run at the same time")
    return found
