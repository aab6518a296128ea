"""What `manage.py benchmark` makes of the instants at which tokens came, and what it recommends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsite.local import concurrency
from generation.benchmark import recommendation, report
from generation.benchmark.measure import Results
from generation.benchmark.recommendation import LONGEST_GAP_SECONDS, Record, configured, machine, recommend
from generation.benchmark.runs import Figures, Prompts, RunFailed, Stream, check, figures
from generation.engine.spec import parse_models

MOCK = "mock=mock:?rate=200"


def record(concurrency: int = 7, **changes: Any) -> Record:
    (spec,) = parse_models(MOCK)
    made = Record(
        concurrency=concurrency,
        model=spec.name,
        source=configured(spec),
        device="",
        dtype="",
        torch="",
        machine=machine(),
        gap_p99_seconds={"7": 0.1},
        measured_at="2026-11-30T12:00:00+00:00",
    )
    return replace(made, **changes)


@pytest.fixture
def kept(tmp_path: Path, settings: Any) -> Path:
    """Where the site's benchmark keeps its record; nothing is there yet."""
    settings.GENERATION_MODELS = MOCK
    settings.GENERATION_BENCHMARK_FILE = tmp_path / "var" / "benchmark.json"
    path: Path = settings.GENERATION_BENCHMARK_FILE
    return path


def test_it_counts_tokens_from_the_first_submission_to_the_last_token() -> None:
    streams = [Stream(10.0, [11.0, 11.5, 12.0]), Stream(10.5, [11.5, 13.5, 14.0])]
    found = figures(streams)
    assert found.tokens_per_second == 6 / 4
    assert found.first_token_seconds == 1.0
    assert found.gap_p50_seconds == 0.5
    assert found.gap_p99_seconds == pytest.approx(2.0, abs=0.05)


def test_it_tells_gaps_while_prompts_are_read_from_those_while_all_are_answered() -> None:
    """The first waits 3 s for the second's prompt; then both have a token each 0.1 s, and the second goes on alone."""
    first = Stream(0.0, [1.0, 4.0, 4.1, 4.2, 4.3])
    second = Stream(0.0, [4.0, 4.1, 4.2, 4.3, 9.3])
    found = figures([first, second])
    assert found.gap_p99_seconds > 3
    assert found.full_gap_p99_seconds == pytest.approx(0.1)
    one_after_the_other = figures([Stream(0.0, [1.0, 1.5]), Stream(0.0, [2.0, 2.5])])
    assert one_after_the_other.full_gap_p99_seconds == one_after_the_other.gap_p99_seconds == 0.5


def test_it_refuses_a_run_with_too_few_tokens() -> None:
    requests = Prompts(range(9), [3]).requests(1, 4)
    with pytest.raises(RunFailed, match="slow gave 1 tokens instead of 4"):
        check("slow", requests, [Stream(0.0, [1.0])])


@given(st.integers(1, 40), st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_it_gives_no_prompt_twice_and_deals_out_the_lengths(number: int, lengths: list[int]) -> None:
    requests = Prompts(range(1000), lengths).requests(number, 5)
    assert [len(request.prompt) for request in requests] == [lengths[i % len(lengths)] for i in range(number)]
    long = [request.prompt for request in requests if len(request.prompt) > 10]
    assert len(set(long)) == len(long)


@given(st.dictionaries(st.integers(1, 64), st.floats(0, 1), max_size=6))
def test_it_recommends_the_most_that_a_reader_need_not_wait_for(gaps: dict[int, float]) -> None:
    found = recommend(gaps)
    quick = [number for number, gap in gaps.items() if gap <= LONGEST_GAP_SECONDS]
    assert found == (max(quick) if quick else 1)


def test_it_reckons_with_readers_of_238_words_a_minute() -> None:
    assert pytest.approx(0.189, abs=0.001) == LONGEST_GAP_SECONDS


def test_it_says_when_even_one_at_a_time_is_slower_than_a_reader() -> None:
    assert "although" in report.recommendation(1, {1: 0.5, 2: 0.9})
    assert "although" not in report.recommendation(2, {1: 0.1, 2: 0.15})


def test_it_compares_round_by_round() -> None:
    """Noise that slows the second round slows both, and cancels out."""

    def of(speed: float) -> Figures:
        return Figures(speed, 1.0, 0.1, 0.1, 0.1)

    results = Results({"ours": {1: [of(20), of(2), of(30)]}, "peer": {1: [of(10), of(1), of(10)]}})
    assert results.ratio("ours", "peer", 1) == 2
    assert results.ratio("ours", "peer", 2) is None


@given(st.floats(0, 1))
def test_a_bar_is_as_long_as_its_share(share: float) -> None:
    bar = report.bar(share, width=10)
    full = bar.count("█")
    assert 1 <= len(bar) <= 10
    assert abs(full + (0.5 if len(bar) > full else 0) - share * 10) <= 0.6


def test_up_answers_four_at_a_time_where_nothing_was_measured(kept: Path) -> None:
    assert concurrency.choose(None)[0] == 4


def test_up_takes_what_was_recommended_unless_it_is_told(kept: Path) -> None:
    record().save(kept)
    number, reason = concurrency.choose(None)
    assert number == 7
    assert "benchmark of 2026-11-30" in reason
    assert concurrency.choose(2) == (2, "answers 2 at a time, as --concurrency says")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "other"}, "is about other (mock:?rate=200)"),
        ({"source": "mock:?rate=9"}, "is about mock (mock:?rate=9)"),
        ({"machine": machine() | {"processor": "Z80"}}, "was taken on another machine"),
        ({"machine": machine() | {"cores": 999}}, "was taken on another machine"),
    ],
)
def test_up_takes_nothing_that_was_measured_elsewhere(kept: Path, changes: dict[str, Any], reason: str) -> None:
    record(**changes).save(kept)
    number, told = concurrency.choose(None)
    assert number == 4
    assert told.endswith(reason)


def test_up_takes_nothing_that_was_measured_with_another_torch(kept: Path, settings: Any) -> None:
    settings.GENERATION_MODELS = "small=/models/small"
    of_this = {"model": "small", "source": "/models/small"}
    record(**of_this, torch=recommendation.torch_version()).save(kept)
    assert concurrency.choose(None)[0] == 7
    record(**of_this, torch="1.0").save(kept)
    assert concurrency.choose(None)[1].endswith("was taken with torch 1.0")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "7", "not json", '{"concurrency": 3}'])
def test_up_ignores_a_file_that_is_no_record(kept: Path, text: str) -> None:
    kept.parent.mkdir()
    kept.write_text(text)
    assert concurrency.choose(None)[0] == 4


@pytest.mark.parametrize("number", [0, -1, "8", 2.5, True, None])
def test_up_ignores_a_record_without_a_number(kept: Path, number: object) -> None:
    record().save(kept)
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"concurrency": number}))
    assert concurrency.choose(None)[0] == 4


def test_a_record_appears_by_one_rename(kept: Path) -> None:
    record(1).save(kept)
    record(2).save(kept)
    assert recommendation.load(kept) == record(2)
    assert [path.name for path in kept.parent.iterdir()] == ["benchmark.json"]
