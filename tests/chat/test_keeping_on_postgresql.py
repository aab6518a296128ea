"""Conversations kept on PostgreSQL, whose search, order and locks are its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgresql
from tests.generation.test_on_postgresql import run_tests

THERE = Path(__file__).parent
ON_BOTH = ["test_keeping.py", "test_keeping_search.py", "test_keeping_titles.py", "test_keeping_transfer.py"]


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    with postgresql.cluster() as cluster:
        yield cluster.url


def test_it_keeps_conversations_on_postgresql(database_url: str) -> None:
    run_tests(database_url, *(str(THERE / name) for name in ON_BOTH))
