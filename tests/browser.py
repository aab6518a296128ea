"""People with a real browser: signed in by a one-time link, each in a context of their own that is watched for faults.

Knows the page's stable hooks, and nothing of what is behind them.
"""

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.site import Site, running

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 60_000  # milliseconds
expect.set_options(timeout=PATIENCE)

# Without a graphics card an animation takes half a core for as long as a page shows it.
LOOKS = {"viewport": {"width": 1000, "height": 700}, "reduced_motion": "reduce"}

SEVERAL_LINKS = """
from chatsite.local import first_start, links
for name in {names!r}:
    print(links.sign_in_link(first_start.person(name), ""))
"""
NUM_LINKS = 8

REPLY_LENGTH = 64
"""Words of a `mock:` reply."""

TELL_VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"""


def numbered(count: int = REPLY_LENGTH, name: str = "w") -> str:
    """A prompt in which no word occurs twice, so that a lost or doubled one shows; `mock:` says the same."""
    return " ".join(f"{name}{number}" for number in range(1, count + 1))


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Person:
    """One signed-in person. `tolerated` holds patterns of the faults that a test brings about itself."""

    def __init__(self, browser: Browser, site: Site, name: str = "", **options: object) -> None:
        self.name, link = (name, sign_in_link(site, name)) if name else _somebody_new(site)
        self.faults: list[str] = []
        self.tolerated: list[str] = []
        self.context: BrowserContext = browser.new_context(**{**LOOKS, **options})
        self.context.set_default_timeout(PATIENCE)
        self.context.add_init_script(TELL_VIOLATIONS)
        self.context.on("console", self._console)
        self.context.on("weberror", lambda error: self.faults.append(str(error.error)))
        self.context.on("requestfailed", self._request_failed)
        self.page = self.tab(link)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.text} ({message.location['url']})")

    def _request_failed(self, request: Request) -> None:
        # A page that is left gives up what it was still loading.
        if request.failure != "net::ERR_ABORTED":
            self.faults.append(f"{request.failure}: {request.url}")

    def tab(self, address: str) -> Page:
        page = self.context.new_page()
        page.goto(address)
        return page

    @property
    def unexpected_faults(self) -> list[str]:
        return [fault for fault in self.faults if not any(re.search(each, fault) for each in self.tolerated)]


_unused: "WeakKeyDictionary[Site, list[tuple[str, str]]]" = WeakKeyDictionary()


def _somebody_new(site: Site) -> tuple[str, str]:
    """A name and a link. Several are made at once: each start of Django takes over a second."""
    unused = _unused.setdefault(site, [])
    if not unused:
        names = [f"p-{uuid.uuid4().hex[:12]}" for _ in range(NUM_LINKS)]
        printed = site.manage("shell", "-v0", "-c", SEVERAL_LINKS.format(names=names))
        assert printed.returncode == 0, printed.stderr
        unused += zip(names, printed.stdout.split(), strict=True)
    name, path = unused.pop()
    return name, site.url + path


def sign_in_link(site: Site, name: str) -> str:
    printed = site.manage("link", "--user", name)
    found = re.search(r"http\S+", printed.stdout)
    assert found, printed.stderr
    return found.group()


@pytest.fixture(scope="session")
def slow_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two at a time, slowly enough to be looked at; two models, so that the page offers a choice.

    A test leaves it idle: its replies end, or are stopped.
    """
    models = "mock=mock:?rate=10 slow=mock:?rate=4"
    site = Site(tmp_path_factory.mktemp("slow"), "--concurrency", "2", "--no-flower", GENERATION_MODELS=models)
    with running(site):
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with its module: Django refuses database calls beside Playwright's event loop."""
    found = program()
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("Chromium is missing")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def sign_in(browser: Browser) -> Iterator[Callable[..., Person]]:
    """`sign_in(site, **context_options)` gives somebody new. Faults that nobody tolerates fail the test."""
    people: list[Person] = []

    def sign_in(site: Site, **options: object) -> Person:
        person = Person(browser, site, **options)
        people.append(person)
        return person

    yield sign_in
    for person in people:
        person.context.close()
    faults = [fault for person in people for fault in person.unexpected_faults]
    assert not faults, "\n".join(faults)


def say(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.locator("#prompt").press("Enter")


def reply(page: Page) -> Locator:
    return page.locator("article.reply").last


def text_of(page: Page) -> Locator:
    return reply(page).locator(".blocks")


def state_of(page: Page) -> str:
    return reply(page).get_attribute("data-state") or ""


def expect_state(page: Page, state: str) -> None:
    expect(reply(page)).to_have_attribute("data-state", state, timeout=PATIENCE)


def expect_whole(page: Page, text: str) -> None:
    """The newest reply ends, and it is this text, each word once."""
    expect_state(page, "finished")
    expect(text_of(page)).to_have_text(text)


def expect_begun(page: Page, word: str = "w6") -> None:
    """The reply is under way: this word is there, and more is to come."""
    expect(text_of(page)).to_contain_text(word, timeout=PATIENCE)
    expect(reply(page)).to_have_attribute("data-state", "running")


def lengths_until_end(page: Page) -> list[int]:
    """The different lengths that the growing text was seen at, in order."""
    seen = [0]
    while state_of(page) in ("", "queued", "running"):
        length = len(text_of(page).inner_text())
        if length != seen[-1]:
            seen.append(length)
    return seen
