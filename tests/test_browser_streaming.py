"""Replies in the browser as they grow: what a token costs, what moves, what a reader who looks elsewhere keeps."""

from collections.abc import Callable

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.browser import PATIENCE, Person, expect_state, text_of
from tests.scripted_reply import ScriptedReply
from tests.site import Site
from tests.test_browser_looks import PHONE
from tests.test_browser_markdown import DOCUMENT

SignIn = Callable[..., Person]
QUARTERS = 4
WATCH = """
window.shifts = [];
window.longest = 0;
new PerformanceObserver((list) => shifts.push(...list.getEntries().filter((shift) => !shift.hadRecentInput)
  .map(({ value, startTime }) => [startTime, value]))).observe({ type: "layout-shift", buffered: true });
new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => (longest = Math.max(longest, duration))))
  .observe({ type: "longtask", buffered: true });
"""


def words(first: int, count: int) -> list[str]:
    return [f"w{number}" for number in range(first, first + count)]


def prose(first: int, count: int) -> str:
    """Paragraphs of forty words, some of them with marks."""
    parts = words(first, count)
    for at in range(0, count, 10):
        parts[at] = f"**{parts[at]}**"
    return "".join(f"{' '.join(parts[at : at + 40])}\n\n" for at in range(0, count, 40))


def bullets(first: int, count: int) -> str:
    return "".join(f"- {' '.join(words(at, 5))}\n" for at in range(first, first + count, 5))


def code(first: int, count: int) -> str:
    lines = "".join(f"{' '.join(words(at, 5))}\n" for at in range(first, first + count, 5))
    return f"```\n{lines}" if first == 1 else lines


def expect_shown(page: Page, word: str) -> None:
    """Looked for in the last block alone, seldom: looking costs time too."""
    look = "(word) => document.querySelector('.blocks').lastElementChild?.textContent.trimEnd().endsWith(word)"
    page.wait_for_function(look, arg=word, polling=250, timeout=PATIENCE)


def busy_seconds(session: CDPSession) -> float:
    """What the page's main thread has worked so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def expect_whole_after_reload(page: Page) -> None:
    """The growing reply became what one render of its whole text is."""
    shown = text_of(page).inner_html()
    page.reload()
    assert text_of(page).inner_html() == shown


def layout_shift(page: Page) -> float:
    """The worst window of shifts, as browsers' Cumulative Layout Shift is defined."""
    worst = window = 0.0
    began = last = float("-inf")
    for at, value in page.evaluate("shifts"):
        if at - last > 1000 or at - began > 5000:
            began, window = at, 0.0
        window, last = window + value, at
        worst = max(worst, window)
    return worst


@pytest.mark.parametrize("kind", [prose, bullets, code])
@pytest.mark.parametrize("count", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_token_costs_the_same_however_long_the_reply(
    site: Site, sign_in: SignIn, kind: Callable[[int, int], str], count: int
) -> None:
    """The page froze in long replies (open-webui/open-webui#3620, posit-dev/shinychat#164)."""
    person = sign_in(site)
    page = person.page
    quarter = count // QUARTERS
    parts = [kind(1 + number * quarter, quarter) for number in range(QUARTERS)]
    with ScriptedReply(site, person.name, parts, rate=2_000) as scripted:
        person.context.add_init_script(WATCH)
        page.goto(scripted.address)
        session = person.context.new_cdp_session(page)
        session.send("Performance.enable")
        spent = []
        for number in range(1, QUARTERS + 1):
            before = busy_seconds(session)
            scripted.go()
            expect_shown(page, f"w{number * quarter}")
            spent.append(busy_seconds(session) - before)
        scripted.go()
        expect_state(page, "finished")
    # A giant block is painted anew as a whole, less often the longer it is.
    assert spent[-1] < 4 * spent[0] + 0.5, spent
    if count > 4_000:
        assert page.evaluate("longest") < 200
    assert layout_shift(page) <= 0.1
    expect(page.locator("#jump")).to_be_hidden()
    expect_whole_after_reload(page)


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 800}])
def test_hardly_anything_moves_while_a_reply_grows(site: Site, sign_in: SignIn, viewport: dict[str, int]) -> None:
    person = sign_in(site, viewport=viewport)
    person.context.add_init_script(WATCH)
    with ScriptedReply(site, person.name, [DOCUMENT, prose(1, 400)], rate=100) as scripted:
        person.page.goto(scripted.address)
        for _ in range(3):
            scripted.go()
        expect_state(person.page, "finished")
    assert layout_shift(person.page) <= 0.1


def test_it_follows_the_end_until_the_reader_scrolls_up_and_again_when_asked(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    page = person.page
    with ScriptedReply(
        site, person.name, [prose(1, 1_000), prose(1_001, 400), prose(1_401, 200)], rate=1_000
    ) as scripted:
        page.goto(scripted.address)
        scripted.go()
        expect_shown(page, "w1000")
        expect(page.locator("#jump")).to_be_hidden()
        page.locator("#scroller").hover()
        page.mouse.wheel(0, -300)
        expect(page.locator("#jump")).to_be_visible()
        place = page.evaluate("scroller.scrollTop")
        scripted.go()
        expect_shown(page, "w1400")
        assert page.evaluate("scroller.scrollTop") == place
        page.locator("#jump").click()
        scripted.go()
        expect_shown(page, "w1600")
        expect(page.locator("#jump")).to_be_hidden()
        scripted.go()
        expect_state(page, "finished")


@pytest.mark.parametrize("kind", [prose, code])
def test_what_is_selected_stays_selected_while_the_reply_grows(
    site: Site, sign_in: SignIn, kind: Callable[[int, int], str]
) -> None:
    person = sign_in(site)
    page = person.page
    with ScriptedReply(site, person.name, [kind(1, 60), kind(61, 400)], rate=1_000) as scripted:
        page.goto(scripted.address)
        scripted.go()
        expect_shown(page, "w60")
        page.evaluate("getSelection().selectAllChildren(document.querySelector('.blocks').lastElementChild)")
        selected = page.evaluate("getSelection().toString()")
        assert "w60" in selected
        scripted.go()
        scripted.go()
        expect_state(page, "finished")
        assert page.evaluate("getSelection().toString()") == selected
    page.evaluate("getSelection().removeAllRanges()")
    expect_shown(page, "w460")
    expect_whole_after_reload(page)
