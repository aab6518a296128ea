"""What many tests of the line share: settings, and a database of PostgreSQL."""

from collections.abc import Iterator
from typing import Any

import pytest

from generation.delivery import stream
from tests import postgresql


@pytest.fixture
def one_model(settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock:"


@pytest.fixture
def no_limits(settings: Any) -> None:
    """People may ask as much as a test wants."""
    settings.GENERATION_MAX_JOBS_PER_USER = settings.GENERATION_MESSAGES_PER_MINUTE = 1_000_000
    settings.GENERATION_MAX_QUEUE_SIZE = 1_000_000


@pytest.fixture
def no_wakes() -> None:
    """Other tests left wakes for jobs that are gone."""
    stream.sync_client().delete("gpu")


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """The address of a PostgreSQL database without a table."""
    with postgresql.cluster() as cluster:
        yield cluster.url
