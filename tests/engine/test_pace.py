"""How long a chunk of a prompt may be while others read."""

from generation.engine.pace import Pace


def measured(token_seconds: float) -> Pace:
    """Steps of one second, and chunks whose tokens add so much each."""
    pace = Pace()
    for _ in range(30):
        pace.note(4, 0, 1.0)
        pace.note(4, 10, 1.0 + 10 * token_seconds)
    return pace


def test_it_shortens_chunks_that_those_who_read_would_notice() -> None:
    assert measured(2**-7).chunk(64, num_decoding=4, num_waiting=1) == 38
    assert measured(2**-10).chunk(64, num_decoding=4, num_waiting=1) == 64


def test_it_uses_whole_chunks_when_as_many_wait_as_read() -> None:
    assert measured(2**-7).chunk(64, num_decoding=4, num_waiting=4) == 64
    assert measured(2**-7).chunk(64, num_decoding=0, num_waiting=1) == 64


def test_it_always_gets_on_with_prompts() -> None:
    assert measured(10.0).chunk(64, num_decoding=4, num_waiting=1) == 16
    assert measured(10.0).chunk(8, num_decoding=4, num_waiting=1) == 8


def test_it_begins_carefully_where_only_whole_prompts_were_measured() -> None:
    pace = Pace()
    assert pace.chunk(64, num_decoding=4, num_waiting=1) == 64
    pace.note(0, 64, 2.0)
    pace.note(4, 0, 1.0)
    assert pace.chunk(64, num_decoding=4, num_waiting=1) == 16
