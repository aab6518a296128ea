"""Everything is killed around one worker on SQLite."""

from pathlib import Path

from tests.chaos import short_form, targets


def test_it_loses_nothing_while_everything_is_killed(tmp_path: Path) -> None:
    """Workers, web process, Redis and database are killed, frozen, emptied; every reply is exact all the same."""
    short_form.check(targets.one_worker, 240, tmp_path)
