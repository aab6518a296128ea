"""Sites whose model misbehaves on request."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.site import Site, running

CONCURRENCY = 4
LEASE_SECONDS = 2
ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
    "GENERATION_MODELS": "mock=mock:?rate=100 fast=mock:?rate=1000&context=8192",
    "GENERATION_MAX_NEW_TOKENS": "6000",
    "GENERATION_LEASE_SECONDS": str(LEASE_SECONDS),
    "GENERATION_MESSAGES_PER_MINUTE": "100000",
    "GENERATION_MAX_JOBS_PER_USER": "1000",
}


@pytest.fixture(scope="session")
def faulty_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all tests that leave its processes alive."""
    site = Site(tmp_path_factory.mktemp("faulty"), "--no-flower", "--concurrency", str(CONCURRENCY), **ENVIRONMENT)
    with running(site):
        yield site


@pytest.fixture
def start_faulty_site(start_site: Callable[..., Site], tmp_path: Path) -> Callable[..., Site]:
    """One of its own for a test that kills: `start_faulty_site(*options, **environ)`."""

    def start(*options: str, **environ: str) -> Site:
        return start_site(tmp_path, "--no-flower", *options, **(ENVIRONMENT | environ))

    return start
