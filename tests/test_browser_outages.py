"""What the page says while something behind it is away, what becomes of a prompt meanwhile, and that all goes on."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests import postgresql
from tests.browser import (
    PATIENCE,
    Person,
    expect_begun,
    expect_state,
    expect_whole,
    numbered,
    say,
    sign_in_link,
)
from tests.faults.outages import full_redis, locked_database
from tests.site import Site, frozen, running

SignIn = Callable[..., Person]
StartSite = Callable[..., Site]

LOST = ["WebSocket connection to .* failed", "net::ERR_(CONNECTION|INTERNET)_"]
RATE = {"GENERATION_MODELS": "mock=mock:?rate=20"}

REDIS, REDIS_FULL = "The message service can't be reached", "The message service is full"
DATABASE, NO_WORKER = "The database can't be reached", "No worker is running"
UNSENT, UNANSWERED = "Not sent yet", "No answer yet"

RECORD = """() => {
  const banner = document.querySelector("#banner");
  window.said = new Set();
  const note = () => banner.textContent && window.said.add(banner.textContent);
  new MutationObserver(note).observe(banner, { childList: true, characterData: true, subtree: true });
}"""


@pytest.fixture(scope="module")
def shaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site for every outage that ends without a trace."""
    site = Site(tmp_path_factory.mktemp("shaken"), "--no-flower", **RATE, GENERATION_LEASE_SECONDS="3")
    with running(site):
        yield site


@contextmanager
def redis_away(site: Site) -> Iterator[None]:
    """Killed, and its next start fails until it may come back."""
    configuration = site.var / "redis" / "redis.conf"
    hidden = configuration.with_suffix(".away")
    configuration.rename(hidden)
    os.kill(site.up["pids"]["redis"], signal.SIGKILL)
    try:
        yield
    finally:
        hidden.rename(configuration)


def expect_said(page: Page, text: str) -> None:
    """In the region that screen readers read out by themselves."""
    expect(page.get_by_role("status").filter(has_text=text).first).to_be_visible(timeout=20_000)


def expect_all_well(page: Page) -> None:
    expect(page.locator("#banner")).to_be_empty(timeout=PATIENCE)
    expect(page.locator("#composer-error")).to_be_hidden()
    expect(page.locator("#composer-hint")).to_be_empty()


def expect_asked_once(page: Page, text: str) -> None:
    """Also by what a reload shows, so by what is stored."""
    asked = page.locator("article.prompt").filter(has_text=text)
    expect(asked).to_have_count(1)
    page.reload()
    expect(page.locator("article.reply .outcome")).to_be_visible()
    expect(asked).to_have_count(1)


def test_it_says_that_redis_is_away_while_a_reply_grows_and_goes_on_in_it(shaken: Site, sign_in: SignIn) -> None:
    page = sign_in(shaken).page
    say(page, numbered())
    expect_begun(page)
    with redis_away(shaken):
        expect_said(page, REDIS)
    expect_whole(page, numbered())
    expect_all_well(page)


def test_a_page_that_is_opened_while_redis_is_away_says_so_and_sends_its_prompt_later(
    shaken: Site, sign_in: SignIn
) -> None:
    """Its socket failed to open, and it said that the connection was lost, which it wasn't."""
    page = sign_in(shaken).page
    with redis_away(shaken):
        expect_said(page, REDIS)
        page.reload()
        expect_said(page, f"{REDIS}. Replies go on by themselves when it is back. Trying again")
        say(page, "asked without Redis")
        expect_said(page, UNSENT)
        expect(page.locator("#prompt")).to_have_value("asked without Redis")
    expect_state(page, "finished")
    expect_all_well(page)
    expect_asked_once(page, "asked without Redis")


def test_it_says_that_redis_is_full_and_answers_what_was_asked_meanwhile(shaken: Site, sign_in: SignIn) -> None:
    page = sign_in(shaken).page
    with full_redis(shaken):
        expect_said(page, REDIS_FULL)
        say(page, numbered(20))
        expect(page.locator("article.prompt")).to_have_count(1)
    expect_state(page, "finished")
    expect_all_well(page)


def test_it_keeps_a_prompt_that_a_locked_database_does_not_take_and_shows_when_it_did(
    shaken: Site, sign_in: SignIn
) -> None:
    """It is asked for once. Workers that couldn't write that they are there aren't said to be missing."""
    page = sign_in(shaken).page
    page.evaluate(RECORD)
    with locked_database(shaken):
        expect_said(page, DATABASE)
        say(page, "asked of a locked database")
        expect_said(page, UNANSWERED)
        expect(page.locator("#prompt")).to_have_value("asked of a locked database")
    expect_state(page, "finished")
    expect_all_well(page)
    assert not [text for text in page.evaluate("[...window.said]") if NO_WORKER in text]
    expect_asked_once(page, "asked of a locked database")


def test_it_sends_a_prompt_of_a_lost_connection_once(shaken: Site, sign_in: SignIn) -> None:
    person = sign_in(shaken)
    person.tolerated += LOST
    page = person.page
    with frozen(shaken.process.pid if shaken.process else 0):  # so that nobody starts it again at once
        os.kill(shaken.up["pids"]["web"], signal.SIGKILL)
        expect_said(page, "Connection lost, trying again")
        say(page, "asked of nobody")
        expect_said(page, UNSENT)
    expect_state(page, "finished")
    expect_all_well(page)
    expect_asked_once(page, "asked of nobody")


def test_it_gives_back_a_prompt_that_is_stopped_before_it_could_be_sent(shaken: Site, sign_in: SignIn) -> None:
    person = sign_in(shaken)
    person.tolerated += LOST
    page = person.page
    person.context.set_offline(True)
    say(page, "never mind")
    expect_said(page, UNSENT)
    page.locator("#stop").click()
    expect(page.locator("#composer-error")).to_have_text("Not sent.")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator("#prompt")).to_have_value("never mind")
    person.context.set_offline(False)
    expect(page.locator("#banner")).to_contain_text("Connected again", timeout=PATIENCE)
    expect(page.locator("article")).to_have_count(0)


def test_it_says_that_no_worker_is_running_and_answers_once_one_is(shaken: Site, sign_in: SignIn) -> None:
    page = sign_in(shaken).page
    with frozen(shaken.up["pids"]["worker"]):
        expect_said(page, NO_WORKER)
        say(page, "asked of no worker")
        expect(page.locator(".reply .status")).to_have_text("next in line, no worker is running")
    expect_state(page, "finished")
    expect_all_well(page)


def test_it_says_at_once_that_it_is_offline_and_goes_on_at_once_afterwards(shaken: Site, sign_in: SignIn) -> None:
    """A browser keeps a socket open whose network is gone; the page said nothing for 40 s."""
    person = sign_in(shaken)
    person.tolerated += LOST
    page = person.page
    say(page, numbered())
    expect_begun(page)
    person.context.set_offline(True)
    expect(page.locator("#banner")).to_contain_text("You are offline", timeout=10_000)
    page.wait_for_event("console", lambda message: "WebSocket" in message.text)  # it tried, in vain
    expect(page.locator("#banner")).to_contain_text("You are offline")
    person.context.set_offline(False)
    expect_whole(page, numbered())
    expect_all_well(page)


def test_it_asks_for_another_reply_once_it_can(shaken: Site, sign_in: SignIn) -> None:
    """The button did nothing without a connection, and didn't say so."""
    person = sign_in(shaken)
    person.tolerated += LOST
    page = person.page
    say(page, "once more")
    expect_state(page, "finished")
    first = page.locator("article.reply").get_attribute("data-job")
    person.context.set_offline(True)
    page.get_by_role("button", name="Try again").click()
    expect_said(page, UNSENT)
    person.context.set_offline(False)
    expect(page.locator("article.reply")).not_to_have_attribute("data-job", first or "", timeout=PATIENCE)
    expect_state(page, "finished")
    expect(page.locator("article.prompt")).to_have_count(1)


def test_it_stays_signed_in_when_the_person_sets_a_password_in_another_tab(shaken: Site, sign_in: SignIn) -> None:
    """The new password closes every socket of the person; with the browser's new cookie another one opens."""
    person = sign_in(shaken)
    page = person.page
    page.evaluate(RECORD)
    with page.expect_event("websocket", timeout=PATIENCE):
        other = person.tab(f"{shaken.url}/accounts/password/")
        for name in ("new_password1", "new_password2"):
            other.locator(f"[name={name}]").fill("quite long 4711")
        other.get_by_role("button", name="Save").click()
    say(page, "after the new password")
    expect_state(page, "finished")
    assert page.evaluate("[...window.said]") == []


def test_it_ends_when_somebody_else_signs_in_with_the_same_browser(shaken: Site, sign_in: SignIn) -> None:
    """The page of one person would have asked in the name of the other."""
    person = sign_in(shaken)
    page = person.page
    person.tab(sign_in_link(shaken, f"{person.name}-2"))
    expect_said(page, "You were signed out")
    say(page, "in whose name?")
    expect(page.locator("#prompt")).to_have_value("in whose name?")
    expect(page.locator("article")).to_have_count(0)


def test_everything_goes_on_after_the_database_was_away_even_if_web_was_killed_meanwhile(
    start_site: StartSite, sign_in: SignIn
) -> None:
    """`up` ended with every process of the site, since it couldn't make a sign-in link for the new one."""
    with postgresql.cluster() as cluster:
        site = start_site(None, "--no-flower", **RATE, DATABASE_URL=cluster.url)
        person = sign_in(site)
        person.tolerated += [*LOST, "status of 503"]
        page = person.page
        say(page, numbered())
        expect_begun(page)
        cluster.stop()
        expect_said(page, DATABASE)
        say(page, "asked of no database")
        expect(page.get_by_role("alert")).to_contain_text("nothing was done")
        expect(page.locator("#prompt")).to_have_value("asked of no database")
        reloaded = person.tab(page.url)
        expect(reloaded.locator("h1")).to_have_text("The database can't be reached")
        before = site.lines.count
        os.kill(site.up["pids"]["web"], signal.SIGKILL)
        site.lines.wait_for("started again: web", after=before)
        expect_said(page, "Connection lost")
        expect_said(page, f"{DATABASE}. New messages are taken again when it is back. Trying again")
        cluster.start()
        expect_whole(page, numbered())
        expect_all_well(page)
        page.locator("#send").click()
        expect(page.locator("article.reply")).to_have_count(2)
        expect_state(page, "finished")
        if reloaded.locator("h1").count():
            reloaded.reload()
        expect(reloaded.locator("article.prompt")).to_have_count(2)
        site.stop()
