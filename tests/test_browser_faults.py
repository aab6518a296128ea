"""What the page shows when the processes behind it are killed or restarted in the middle of a reply."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.browser import (
    PATIENCE,
    Person,
    expect_begun,
    expect_state,
    expect_whole,
    lengths_until_end,
    numbered,
    reply,
    say,
    state_of,
    text_of,
)
from tests.site import Site

StartSite = Callable[..., Site]
SignIn = Callable[..., Person]

RATE = "mock=mock:?rate=10"
LOST_SOCKET = "WebSocket connection to .* failed"


def test_it_goes_on_in_the_same_reply_when_the_worker_is_killed(start_site: StartSite, sign_in: SignIn) -> None:
    site = start_site(None, "--no-flower", GENERATION_MODELS=RATE)
    page = sign_in(site).page
    say(page, numbered())
    expect_begun(page)
    job = reply(page).get_attribute("data-job")
    os.kill(site.up["pids"]["worker"], signal.SIGKILL)
    seen = lengths_until_end(page)
    assert seen == sorted(seen), "text that was shown went away"
    expect_whole(page, numbered())
    expect(page.locator("article.reply")).to_have_count(1)
    expect(reply(page)).to_have_attribute("data-job", job or "")


def test_it_says_that_the_connection_is_lost_and_catches_up(start_site: StartSite, sign_in: SignIn) -> None:
    site = start_site(None, "--no-flower", GENERATION_MODELS=RATE)
    person = sign_in(site)
    person.tolerated.append(LOST_SOCKET)
    page = person.page
    say(page, numbered())
    expect_begun(page)
    os.kill(site.up["pids"]["web"], signal.SIGKILL)
    expect(page.locator("#banner")).to_contain_text("Connection lost")
    expect(page.locator("#banner")).to_contain_text("Connected again", timeout=PATIENCE)
    expect_whole(page, numbered())
    expect(page.locator("#banner")).to_be_hidden()


def test_it_shows_the_history_after_a_restart_of_everything(
    start_site: StartSite, sign_in: SignIn, tmp_path: Path
) -> None:
    """A page that stayed open goes on; a reply that was under way is finished by the new worker."""
    site = start_site(tmp_path, "--no-flower", GENERATION_MODELS=RATE)
    person = sign_in(site)
    person.tolerated += [LOST_SOCKET, "ERR_CONNECTION_REFUSED"]
    page = person.page
    say(page, numbered(8, "old"))
    expect_state(page, "finished")
    earlier = text_of(page).inner_text()
    say(page, numbered())
    expect_begun(page)
    port = str(urlsplit(site.url).port)
    assert site.stop() == 0
    start_site(tmp_path, "--no-flower", "--port", port, GENERATION_MODELS=RATE)
    expect_whole(page, numbered())
    page.reload()
    expect(page.locator(".blocks").first).to_have_text(earlier)
    expect_whole(page, numbered())
    expect(page.locator("nav#conversations a")).to_have_text(numbered(8, "old"))
    say(page, "and on")
    expect(page.locator("article.reply")).to_have_count(3)
    expect_begun(page, "and on")
    assert state_of(page) == "running"
