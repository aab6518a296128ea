"""What was measured as text for a terminal and as JSON. Measures nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from generation.benchmark.measure import Results
from generation.benchmark.recommendation import LONGEST_GAP_SECONDS, WORDS_PER_MINUTE
from generation.benchmark.runs import Figures
from generation.benchmark.scenes import Finding

BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"

_SECTIONS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("tokens/s, prompts included", lambda each: f"{each.tokens_per_second:.1f}"),
    ("first token, s", lambda each: f"{each.first_token_seconds:.2f}"),
    ("gap between tokens, p50, ms", lambda each: f"{each.gap_p50_seconds * 1000:.0f}"),
    ("gap between tokens, p99, ms", lambda each: f"{each.gap_p99_seconds * 1000:.0f}"),
    ("… while all are answered, p99, ms", lambda each: f"{each.full_gap_p99_seconds * 1000:.0f}"),
)


def table(results: Results, names: Sequence[str], numbers: Sequence[int]) -> Iterator[str]:
    """A section for each figure, a row for each contestant, a column for each number of sequences."""
    width = max(map(len, names)) + 4
    yield f"{'sequences':<{width}}" + "".join(f"{number:>9}" for number in numbers)
    for title, shown in _SECTIONS:
        yield title
        for name in names:
            cells = [results.median(name, number) for number in numbers]
            yield f"  {name:<{width - 2}}" + "".join(f"{shown(cell) if cell else '–':>9}" for cell in cells)
    for peer in names[1:]:
        ratios = [results.ratio(names[0], peer, number) for number in numbers]
        if peer == names[1]:
            yield f"{names[0]}'s tokens/s to those of"
        cells_of_ratios = (f"{ratio:.2f} ×" if ratio else "–" for ratio in ratios)
        yield f"  {peer:<{width - 2}}" + "".join(f"{cell:>9}" for cell in cells_of_ratios)


def chart(results: Results, names: Sequence[str], numbers: Sequence[int]) -> Iterator[str]:
    """Tokens/s as bars."""
    found = {(name, number): results.median(name, number) for number in numbers for name in names}
    largest = max((each.tokens_per_second for each in found.values() if each), default=0.0)
    width = max(map(len, names))
    yield "tokens/s"
    for number in numbers:
        for name in names:
            if each := found[name, number]:
                label = f"{number:>3}" if name == names[0] else "   "
                speed = each.tokens_per_second
                yield f"{label} {name:<{width}} {bar(speed / largest)} {speed:.1f}"


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of eighths of a character; never empty."""
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def memory(results: Results) -> Iterator[str]:
    for name in results.bytes_of_loading | results.bytes_of_running:
        parts = []
        if name in results.bytes_of_loading:
            parts.append(f"{_megabytes(results.bytes_of_loading[name])} by loading")
        if name in results.bytes_of_running:
            parts.append(f"{_megabytes(results.bytes_of_running[name])} by running")
        yield f"memory of {name}: {', '.join(parts)}"


def _megabytes(number: int) -> str:
    return f"{round(number / 1e6):,} MB"


def scene(finding: Finding) -> str:
    text = f"{finding.name}: {finding.seconds * 1000:,.0f} ms"
    if finding.beside_seconds is None or finding.ratio is None:
        return text
    return f"{text} to {finding.beside_seconds * 1000:,.0f} ms, {finding.ratio:.2f} ×"


def recommendation(concurrency: int, gaps_p99: Mapping[int, float]) -> str:
    reader = f"{LONGEST_GAP_SECONDS * 1000:.0f} ms that a reader at {WORDS_PER_MINUTE} words a minute takes for a token"
    gap = gaps_p99.get(concurrency)
    if gap is None or gap > LONGEST_GAP_SECONDS:
        return (
            f"recommended: --concurrency {concurrency}, although with no measured number 99 % of gaps are within "
            f"the {reader}"
        )
    return (
        f"recommended: --concurrency {concurrency}; while all are answered 99 % of gaps are within "
        f"{gap * 1000:.0f} ms, and no more than the {reader}"
    )


def as_json(
    results: Results, names: Sequence[str], numbers: Sequence[int], findings: Sequence[Finding]
) -> dict[str, Any]:
    """The figures alone; keys of numbers are text, as JSON has them."""

    def of(name: str) -> dict[str, dict[str, float]]:
        medians = {number: results.median(name, number) for number in numbers}
        return {
            str(number): asdict(found) | {"rounds": len(results.rounds[name][number])}
            for number, found in medians.items()
            if found
        }

    def ratios(peer: str) -> dict[str, float]:
        found = {str(number): results.ratio(names[0], peer, number) for number in numbers}
        return {number: ratio for number, ratio in found.items() if ratio}

    return {
        "contestants": {name: of(name) for name in names},
        "ratios": {peer: ratios(peer) for peer in names[1:]},
        "bytes_of_loading": results.bytes_of_loading,
        "bytes_of_running": results.bytes_of_running,
        "scenes": [asdict(finding) for finding in findings],
    }
