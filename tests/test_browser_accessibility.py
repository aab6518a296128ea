"""axe-core on every page of the chat, light and dark, on a phone and on a wide screen; what a screen reader is told."""

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.browser import Person, expect_begun, expect_state, numbered, reply, say
from tests.site import Site
from tests.test_browser_looks import PHONE, expect_no_sideways_scrolling
from tests.test_browser_markdown import DOCUMENT, open_stored

SignIn = Callable[..., Person]
WIDTHS = {"phone": PHONE, "wide": {"width": 1280, "height": 800}}

RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => [id, target.join(" "), failureSummary]));
}"""


def expect_accessible(page: Page, width: str = "") -> None:
    """axe-core finds nothing, in both colour schemes; on both widths if none is named. Nothing is too wide either."""
    page.emulate_media(reduced_motion="reduce")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[Any] = []
    for each in [width] if width else WIDTHS:
        page.set_viewport_size(WIDTHS[each])  # type: ignore[arg-type]
        expect_no_sideways_scrolling(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found += [[each, scheme, *violation] for violation in page.evaluate(RUN)]
    assert not found, "\n\n".join(": ".join(map(str, violation)) for violation in found)


@pytest.fixture
def person(site: Site, sign_in: SignIn) -> Person:
    return sign_in(site)


def test_axe_finds_nothing_on_the_empty_page_and_its_menus(person: Person) -> None:
    page = person.page
    expect_accessible(page)
    page.locator("#account summary").click()
    expect_accessible(page, "wide")
    page.keyboard.press("Escape")
    page.locator("#prompt").fill("x" * 100_001)
    expect(page.locator("#composer-error")).to_be_visible()
    expect_accessible(page)
    page.keyboard.press("Control+/")
    expect(page.locator("#keys")).to_be_visible()
    expect_accessible(page)


def test_axe_finds_nothing_on_a_finished_reply_with_everything_in_it(site: Site, person: Person) -> None:
    page = open_stored(site, person, DOCUMENT)
    expect_accessible(page)
    reply(page).get_by_role("button", name="Bad reply").click()
    expect(page.locator("form.word")).to_be_visible()
    page.locator("article.prompt").get_by_role("button", name="Edit").click()
    expect_accessible(page)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".stepper .place").last).to_have_text("2/2")
    expect_state(page, "finished")
    page.locator("#clear-context").click()
    expect(page.locator(".cleared")).to_be_visible()
    expect_accessible(page)
    item = page.locator("#conversations li").first
    item.hover()
    item.get_by_role("button").click()
    expect(page.get_by_role("menu")).to_be_visible()
    expect_accessible(page, "wide")
    page.get_by_role("menuitem", name="Rename").click()
    expect_accessible(page, "wide")


def test_axe_finds_nothing_while_a_reply_grows_and_another_waits(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    say(page, numbered())
    expect_begun(page)
    expect_accessible(page)
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    expect_accessible(page)


def test_axe_finds_nothing_on_the_search(site: Site, person: Person) -> None:
    page = open_stored(site, person, DOCUMENT)
    for words in ("word", "nothingofthekind"):
        page.goto(f"{site.url}/search/?q={words}")
        expect_accessible(page)


def test_axe_finds_nothing_in_the_drawer_of_a_phone(site: Site, sign_in: SignIn) -> None:
    page = open_stored(site, sign_in(site, viewport=PHONE), DOCUMENT)
    page.emulate_media(reduced_motion="reduce")
    page.locator("#open-sidebar").click()
    expect(page.locator("#conversations a").first).to_be_in_viewport(ratio=1)
    expect_accessible(page, "phone")
    page.locator("#conversations .options").first.click()
    expect_accessible(page, "phone")
    page.keyboard.press("Escape")
    page.locator("#account summary").click()
    expect_accessible(page, "phone")


def test_axe_finds_nothing_on_the_pages_that_are_a_card(site: Site, person: Person) -> None:
    page = person.page
    person.tolerated.append("status of 40[34]")
    for path in ("/accounts/password/", "/c/00000000-0000-4000-8000-000000000000/", "/accounts/link/"):
        page.goto(site.url + path)
        expect_accessible(page)
    person.context.clear_cookies()
    page.goto(site.url)
    expect_accessible(page)
    page.get_by_label("Username").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect_accessible(page)


HEAR = """() => {
  window.heard = [];
  const live = document.querySelector("#live");
  new MutationObserver(() => window.heard.push(live.textContent)).observe(live, { childList: true });
}"""


def test_a_screen_reader_hears_a_reply_once_and_when_it_is_complete(person: Person) -> None:
    page = person.page
    page.evaluate(HEAR)
    say(page, numbered())
    expect_state(page, "finished")
    heard = page.evaluate("heard")
    assert heard[-1] == f"Reply complete. {numbered()}"
    assert [text for text in heard if "w1" in text] == heard[-1:]
    # Nothing else in the thread speaks by itself.
    assert page.locator("#thread :is([aria-live], [role=status], [role=log], [role=alert])").count() == 0


def test_a_screen_reader_hears_the_place_in_line_when_it_changes(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    page.evaluate(HEAR)
    for number in range(1, 5):
        say(page, numbered())
        expect(page.locator("article.reply")).to_have_count(number)
    expect(reply(page).locator(".status")).to_contain_text("2nd in line")
    page.wait_for_function("heard.some((text) => text.startsWith('2nd in line'))")
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    places = [text for text in page.evaluate("heard") if text.startswith("2nd in line")]
    assert len(places) == 1  # though its wait is counted down


def test_nothing_moves_for_who_wants_less_motion(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site, viewport=PHONE, reduced_motion="reduce").page
    say(page, numbered())
    expect_begun(page)
    page.locator("#open-sidebar").click()
    expect(page.locator("#close-sidebar")).to_be_focused()
    page.keyboard.press("Control+/")
    assert page.evaluate("document.getAnimations().length") == 0
    moving = (
        "[...document.querySelectorAll('*')].filter((box) => getComputedStyle(box).transitionDuration !== '0s').length"
    )
    assert page.evaluate(moving) == 0
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.locator("#stop").click()
    expect_state(page, "cancelled")
