"""The whole way: browser, socket, line, Celery worker, engine, and token by token back into the page."""

import re
from collections.abc import Callable

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

SignIn = Callable[..., Person]


def test_it_answers_with_the_builtin_model(start_site: Callable[..., Site], sign_in: SignIn) -> None:
    site = start_site(None, "--no-flower", GENERATION_MODELS="", GENERATION_MAX_NEW_TOKENS="80")
    page = sign_in(site).page
    page.get_by_role("textbox", name="Your message").press_sequentially(
        "Explain how a rainbow forms, in three short paragraphs."
    )
    page.get_by_role("button", name="Send").click()
    expect(page.locator("article.reply")).to_have_count(1)
    seen = lengths_until_end(page)
    assert state_of(page) == "finished"
    # It grows, but for the marks that turn into a list or bold letters once they are complete.
    assert len(set(seen)) > 3, seen
    expect(reply(page).locator(".outcome")).to_have_text(re.compile(r"^\d+ tokens · \d+\.\d tokens/s"))
    expect(page).to_have_url(re.compile(r"/c/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/$"))
    assert "�" not in text_of(page).inner_text()


def test_it_runs_two_at_a_time_and_tells_the_third_its_place(slow_site: Site, sign_in: SignIn) -> None:
    first, second, third = (sign_in(slow_site).page for _ in range(3))
    for page in (first, second):
        say(page, numbered())
        expect_state(page, "running")
    say(third, numbered())
    expect(reply(third).locator(".status")).to_have_text(re.compile("^next in line"))
    seen: set[tuple[str, str]] = set()
    while True:
        third_state = state_of(third)
        texts = text_of(first).inner_text(), text_of(second).inner_text()
        if any("w55" in text for text in texts):
            break
        assert third_state == "queued"
        seen.add(texts)
    for grown in zip(*seen, strict=True):
        assert len(set(grown)) > 5, seen
    expect_state(third, "running")
    for page in (first, second, third):
        expect_whole(page, numbered())


def test_it_takes_somebody_out_of_the_line(slow_site: Site, sign_in: SignIn) -> None:
    page, *busy = (sign_in(slow_site).page for _ in range(3))
    for each in busy:
        each.locator("#model").select_option("slow")  # stopped long before its end
        say(each, numbered())
        expect_state(each, "running")
    say(page, "never mind")
    expect(reply(page).locator(".status")).to_have_text(re.compile("^next in line"))
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    expect(reply(page).locator(".outcome")).to_have_text("stopped")
    expect(text_of(page)).to_be_empty()
    page.reload()
    expect(reply(page).locator(".outcome")).to_have_text("stopped")
    for each in busy:
        each.locator("#stop").click()
        expect_state(each, "cancelled")


def test_it_keeps_what_was_said_before_a_stop(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    say(page, numbered())
    expect_begun(page)
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    kept = text_of(page).inner_text()
    assert kept.startswith("w1 w2 w3 w4 w5 w6") and numbered().startswith(kept) and kept != numbered()
    page.reload()
    expect(text_of(page)).to_have_text(kept)


def test_it_shows_the_whole_reply_after_a_reload_in_its_middle(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    page.locator("#model").select_option("slow")
    say(page, numbered())
    expect_begun(page)
    page.reload()
    expect(reply(page)).to_have_attribute("aria-busy", "true")
    expect_whole(page, numbered())


def test_it_shows_the_whole_reply_in_a_tab_opened_in_its_middle(slow_site: Site, sign_in: SignIn) -> None:
    person = sign_in(slow_site)
    person.page.locator("#model").select_option("slow")
    say(person.page, numbered())
    expect_begun(person.page)
    other = person.tab(person.page.url)
    expect_begun(other)
    expect_whole(other, numbered())
    expect_whole(person.page, numbered())


def test_it_shows_the_whole_reply_to_a_browser_that_was_offline(slow_site: Site, sign_in: SignIn) -> None:
    """Another person's reply, begun at the same moment, tells how long ten seconds are: forty words."""
    person, clock = sign_in(slow_site), sign_in(slow_site)
    for page in (person.page, clock.page):
        page.locator("#model").select_option("slow")
        say(page, numbered())
    expect_begun(person.page, "w3")
    person.context.set_offline(True)
    person.tolerated.append("ERR_INTERNET_DISCONNECTED")
    expect(text_of(clock.page)).to_contain_text("w45", timeout=PATIENCE)
    expect(text_of(person.page)).not_to_contain_text("w30")
    person.context.set_offline(False)
    expect_begun(person.page, "w46")
    for page in (person.page, clock.page):
        expect_whole(page, numbered())


def test_it_answers_a_second_prompt_in_the_same_conversation(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    say(page, numbered(name="first"))
    expect_whole(page, numbered(name="first"))
    address = page.url
    say(page, numbered(name="second"))
    expect(page.locator("article.reply")).to_have_count(2)
    expect_whole(page, numbered(name="second"))
    assert page.url == address
    page.reload()
    expect(page.locator(".blocks").first).to_have_text(numbered(name="first"))
    expect_whole(page, numbered(name="second"))


def test_it_opens_an_older_conversation_from_the_side(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    addresses = []
    for name in ("rain", "snow"):
        page.get_by_role("link", name="New conversation").click()
        say(page, numbered(5, name))
        expect_state(page, "finished")
        addresses.append(page.url)
    page.locator("nav#conversations").get_by_role("link", name="rain1").click()
    expect(page).to_have_url(addresses[0])
    expect(text_of(page)).to_contain_text(numbered(5, "rain"))
    expect(page.locator("nav#conversations a[aria-current]")).to_have_text(numbered(5, "rain"))


def test_it_keeps_a_refused_prompt_in_the_composer_with_the_reason(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    invisible = "\u200b\u2060"
    say(page, invisible)
    expect(page.locator("#composer-error")).to_have_text("The message is empty.")
    expect(page.locator("#prompt")).to_have_value(invisible)
    expect(page.locator("article")).to_have_count(0)
    page.locator("#prompt").fill("visible")
    expect(page.locator("#composer-error")).to_be_hidden()
    page.locator("#send").click()
    expect_state(page, "finished")


def test_it_shows_anothers_conversation_like_none(site: Site, sign_in: SignIn) -> None:
    owner, stranger = sign_in(site), sign_in(site)
    say(owner.page, "mine alone")
    expect_state(owner.page, "finished")
    stranger.tolerated.append("404")
    pages = []
    for address in (owner.page.url, re.sub(r"[0-9a-f]{12}/$", "000000000000/", owner.page.url)):
        response = stranger.page.goto(address)
        assert response is not None and response.status == 404
        expect(stranger.page.get_by_text("mine alone")).to_have_count(0)
        pages.append(stranger.page.locator("body").inner_html())
    assert pages[0] == pages[1]
