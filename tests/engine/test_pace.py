"""How many prompt tokens a step takes while others read, and while they wait."""

import pytest

from generation.engine import SamplingParams
from generation.engine.pace import Pace
from generation.engine.scheduler import Scheduler
from tests.engine.sequences import sequence


def measured(token_seconds: float, chunk: int = 64) -> Pace:
    """Steps of one second, and chunks whose tokens add so much each."""
    pace = Pace(chunk, 512)
    for _ in range(30):
        pace.note(4, 0, 1.0)
        pace.note(4, 10, 1.0 + 10 * token_seconds)
    return pace


def test_it_shortens_chunks_that_those_who_read_would_notice() -> None:
    assert measured(2**-7).budget(num_decoding=4, num_waiting=1) == 38
    assert measured(2**-10).budget(num_decoding=4, num_waiting=1) == 64


def test_it_takes_what_half_a_second_computes_when_as_many_wait_as_read() -> None:
    pace = Pace(64, 512)
    assert pace.budget(num_decoding=0, num_waiting=1) == 64
    pace.note(0, 64, 64 * 2**-8)
    assert pace.budget(num_decoding=0, num_waiting=1) == pace.budget(num_decoding=4, num_waiting=4) == 128
    pace.note(4, 0, 1.0)
    assert pace.budget(num_decoding=4, num_waiting=3) == 64


def test_its_longest_step_is_bounded_where_tokens_cost_nothing_or_much() -> None:
    fast, slow = Pace(64, 512), Pace(64, 512)
    fast.note(0, 64, 1e-6)
    slow.note(0, 64, 10.0)
    assert fast.budget(num_decoding=0, num_waiting=1) == 512
    assert slow.budget(num_decoding=0, num_waiting=1) == 64


def test_it_always_gets_on_with_prompts() -> None:
    assert measured(10.0).budget(num_decoding=4, num_waiting=1) == 16
    assert measured(10.0, chunk=8).budget(num_decoding=4, num_waiting=1) == 8


def test_it_begins_carefully_where_only_whole_prompts_were_measured() -> None:
    pace = Pace(64, 512)
    assert pace.budget(num_decoding=4, num_waiting=1) == 64
    pace.note(0, 64, 2.0)
    pace.note(4, 0, 1.0)
    assert pace.budget(num_decoding=4, num_waiting=1) == 16


@pytest.mark.parametrize(("prefill_chunk", "length"), [(None, 128), (64, 64), (0, 300)])
def test_a_step_takes_no_more_than_a_number_that_is_given(prefill_chunk: int | None, length: int) -> None:
    scheduler = Scheduler(1, prefill_chunk, 1000, keeps_prefixes=False)
    scheduler.pace.note(0, 64, 64 * 2**-8)
    scheduler.add(sequence(SamplingParams(), list(range(300))))
    (segment,) = scheduler.plan(now=0.0).prefill
    assert segment.length == length
