"""Fixtures for all tests. The environment is prepared first, since settings read it when they are loaded."""

from collections.abc import Callable, Iterator
from pathlib import Path

import django
import pytest

from tests import environment

environment.prepare()
django.setup()

from tests.browser import browser, sign_in, slow_site  # noqa: E402, F401
from tests.site import Site, running  # noqa: E402

LONG = ("tests/chaos/", "tests/across_hosts/", "tests/generation/test_on_postgresql.py", "tests/test_end_to_end.py")
"""Files that take a minute or more: begun last, one of two processes would wait for the other's."""


def pytest_configure(config: pytest.Config) -> None:
    """The processes that run the tests have a Redis each, and must not inherit that of the one which starts them."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        environment.leave()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture
def start_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start a site: `start_site(folder=None, *options, **environ)`. All are stopped after the test."""
    sites: list[Site] = []

    def start(folder: Path | None = None, *options: str, **environ: str) -> Site:
        site = Site(folder or tmp_path, *options, **environ)
        sites.append(site)
        return site.start()

    yield start
    for site in sites:
        site.stop()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One running site with the model `mock`, four at a time, for all tests that don't break it."""
    site = Site(tmp_path_factory.mktemp("site"))
    with running(site):
        yield site
