"""The page in a real browser against a running site: what the composer and the thread do."""

import json
import re
from collections.abc import Callable
from functools import partial

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser import Person, expect_state, say
from tests.site import Site

WORDS = "some words to be said again "

ENTER_WHILE_COMPOSING = """(box) => {
  const enter = (fields) =>
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, ...fields }));
  enter({ isComposing: true });
  enter({ keyCode: 229 });
  box.dispatchEvent(new CompositionEvent("compositionend"));
  enter({});
}"""


@pytest.fixture
def visit(site: Site, sign_in: Callable[..., Person]) -> Callable[[], Page]:
    """Open the page as somebody new."""
    return lambda: sign_in(site, viewport={"width": 1000, "height": 500}).page


def test_it_takes_a_new_conversation_to_its_own_address_and_shows_it_whole_after_a_reload(
    visit: Callable[[], Page],
) -> None:
    page = visit()
    say(page, WORDS)
    expect_state(page, "finished")
    expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}/$"))
    expect(page.locator("nav#conversations a")).to_have_text(WORDS.strip())
    expect(page.locator(".reply .outcome")).to_contain_text("tokens/s")
    shown = page.locator(".reply .blocks").inner_html()
    page.reload()
    expect(page.locator(".reply .outcome")).to_contain_text("tokens/s")
    assert page.locator(".reply .blocks").inner_html() == shown


def test_it_sends_once_however_often_the_button_is_pressed(visit: Callable[[], Page]) -> None:
    page = visit()
    page.locator("#prompt").fill(WORDS)
    page.locator("#send").dblclick()
    expect_state(page, "finished")
    expect(page.locator("article.prompt")).to_have_count(1)
    expect(page.locator("#prompt")).to_have_value("")
    page.reload()
    expect(page.locator("article.prompt")).to_have_count(1)


def test_it_sends_once_what_was_asked_before_the_server_spoke(visit: Callable[[], Page]) -> None:
    """It was sent at once and again at `hello`; the second answer said that the growing reply waits in line."""
    page = visit()
    sent: list[str] = []
    held: list[Callable[[], None]] = []
    speaks = False

    def between(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def from_page(message: str | bytes) -> None:
            sent.append(json.loads(message)["type"])
            server.send(message)

        def from_server(message: str | bytes) -> None:
            tell = partial(socket.send, message)
            tell() if speaks else held.append(tell)

        socket.on_message(from_page)
        server.on_message(from_server)

    page.route_web_socket("**/ws/chat/**", between)
    page.reload()
    say(page, WORDS)
    expect(page.locator("#stop")).to_be_visible()
    speaks = True
    for tell in held:
        tell()
    expect_state(page, "finished")
    assert sent.count("prompt") == 1
    expect(page.locator("article.prompt")).to_have_count(1)


def test_it_does_not_send_on_the_enter_that_confirms_a_candidate(visit: Callable[[], Page]) -> None:
    """Enter in a Japanese or Chinese input method sent half a message (jundot/omlx#656)."""
    page = visit()
    page.locator("#prompt").fill("にほん")
    page.locator("#prompt").evaluate(ENTER_WHILE_COMPOSING)
    expect(page.locator("#prompt")).to_have_value("にほん")
    expect(page.locator("article")).to_have_count(0)


def test_it_breaks_the_line_on_shift_enter_and_keeps_the_draft_over_a_reload(visit: Callable[[], Page]) -> None:
    page = visit()
    page.locator("#prompt").fill("one")
    page.locator("#prompt").press("Shift+Enter")
    page.locator("#prompt").press_sequentially("two")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("one\ntwo")


def test_it_says_that_a_text_is_too_long_before_it_is_sent(visit: Callable[[], Page]) -> None:
    page = visit()
    page.locator("#prompt").fill("x" * 100_001)
    expect(page.locator("#composer-error")).to_contain_text("100,001 characters; at most 100,000")
    expect(page.locator("#send")).to_be_disabled()


def test_it_stops_a_reply_and_keeps_what_was_said(slow_site: Site, sign_in: Callable[..., Person]) -> None:
    page = sign_in(slow_site).page
    page.locator("#model").select_option("slow")
    say(page, WORDS)
    expect(page.locator(".reply .blocks")).to_contain_text("some words")
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    expect(page.locator(".reply .outcome")).to_have_text("stopped")
    expect(page.locator(".reply .blocks")).to_contain_text("some words")
    expect(page.locator("#stop")).to_be_hidden()


def test_it_shows_a_prompt_of_another_tab_with_its_reply(visit: Callable[[], Page]) -> None:
    page = visit()
    say(page, "first")
    expect_state(page, "finished")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("article.reply")).to_have_count(1)
    say(page, WORDS)
    expect(other.locator("article.prompt").last).to_have_text(WORDS.strip())
    for each in (page, other):
        expect(each.locator("article.reply")).to_have_count(2)
        expect_state(each, "finished")
    assert page.locator(".blocks").last.inner_html() == other.locator(".blocks").last.inner_html()


def test_it_stops_following_the_end_once_the_reader_scrolls_up(visit: Callable[[], Page]) -> None:
    page = visit()
    say(page, "\n".join(["a line"] * 60))
    expect_state(page, "finished")
    expect(page.locator("#jump")).to_be_hidden()
    page.locator("#scroller").hover()
    page.mouse.wheel(0, -200)
    expect(page.locator("#jump")).to_be_visible()
    page.locator("#jump").click()
    expect(page.locator("#jump")).to_be_hidden()


def test_it_fits_a_phone_without_scrolling_sideways(visit: Callable[[], Page]) -> None:
    page = visit()
    page.set_viewport_size({"width": 390, "height": 844})
    say(page, "w" * 300 + " " + WORDS)
    expect_state(page, "finished")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("(box => box.scrollWidth - box.clientWidth)(document.querySelector('#scroller'))") == 0
    page.locator("#open-sidebar").click()
    expect(page.locator("nav#conversations a")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("nav#conversations a")).to_be_hidden()


def test_it_tells_a_page_whose_person_signed_out_elsewhere(visit: Callable[[], Page]) -> None:
    """An open page went on working after the sign-out (django/channels#718)."""
    page = visit()
    expect(page.locator("#prompt")).to_be_visible()
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("#account summary").click()
    other.get_by_role("button", name="Sign out").click()
    expect(page.locator("#banner")).to_contain_text("You were signed out", timeout=20_000)
    # What is asked now is never sent: it is told so, and stays.
    say(page, "too late")
    expect(page.locator("#composer-error")).to_have_text("Not sent. Your text is kept.")
    expect(page.locator("#composer-hint")).to_be_empty()
    expect(page.locator("#prompt")).to_have_value("too late")
    expect(page.locator("#send")).to_be_enabled()


def test_it_runs_nothing_and_asks_no_foreign_server_for_what_was_written(visit: Callable[[], Page]) -> None:
    """Text of a model ran as HTML in the page (lm-sys/FastChat#88, OvidijusParsiunas/deep-chat#123)."""
    page = visit()
    foreign: list[str] = []
    page.on("request", lambda request: "evil.example" in request.url and foreign.append(request.url))
    attack = (
        "<img src=https://evil.example/a.png onerror=\"document.title='owned'\"> <svg onload=alert(1)> "
        "[x](javascript:alert(1)) ![p](https://evil.example/p.png) $\\text{<img/src=x/onerror=alert(1)>}$"
    )
    say(page, attack)
    expect_state(page, "finished")
    for _ in ("live", "after a reload"):
        expect(page.locator("article.prompt")).to_have_text(attack)
        expect(page.locator("#thread :is(.text, .blocks) :is(img, svg, script, a[href^=javascript])")).to_have_count(0)
        assert "owned" not in page.title()
        page.reload()
    assert not foreign
