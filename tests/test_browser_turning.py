"""What a person does with messages in the browser: versions, edits, a cleared context, thumbs, copying, stopping."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import Person, expect_begun, expect_state, expect_whole, numbered, reply, say, text_of
from tests.site import Site
from tests.test_browser_looks import PHONE, expect_no_sideways_scrolling

SignIn = Callable[..., Person]


@pytest.fixture
def visit(site: Site, sign_in: SignIn) -> Callable[..., Page]:
    """Open the page as somebody new."""
    return lambda **options: sign_in(site, **options).page


def prompts(page: Page) -> Locator:
    return page.locator("article.prompt .text")


def converse(page: Page, *texts: str) -> None:
    for text in texts:
        before = page.locator("article.reply").count()
        say(page, text)
        expect(page.locator("article.reply")).to_have_count(before + 1)
        expect_state(page, "finished")


def edit(page: Page, number: int, text: str) -> None:
    article = page.locator("article.prompt").nth(number)
    article.hover()
    article.get_by_role("button", name="Edit").click()
    article.get_by_role("textbox").fill(text)
    article.get_by_role("button", name="Save").click()
    expect(prompts(page).last).to_have_text(text)
    expect_state(page, "finished")


def test_it_keeps_each_reply_to_a_prompt_and_steps_between_them(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "say it")
    first = reply(page).get_attribute("data-message") or ""
    for count in (2, 3):
        reply(page).get_by_role("button", name="Try again").click()
        expect(reply(page).locator(".place")).to_have_text(f"{count}/{count}")
        expect_state(page, "finished")
    last = reply(page).get_attribute("data-message") or ""
    for place in ("2/3", "1/3"):
        reply(page).get_by_role("button", name="Previous version").click()
        expect(reply(page).locator(".place")).to_have_text(place)
    expect(reply(page)).to_have_attribute("data-message", first)
    expect(reply(page).get_by_role("button", name="Previous version")).to_be_disabled()
    expect(reply(page).get_by_role("button", name="Next version")).to_be_focused()
    page.reload()
    expect(reply(page)).to_have_attribute("data-message", first)
    expect(reply(page).locator(".place")).to_have_text("1/3")
    # By keyboard alone, forth again.
    reply(page).get_by_role("button", name="Next version").focus()
    page.keyboard.press("Enter")
    expect(reply(page).locator(".place")).to_have_text("2/3")
    page.keyboard.press("Enter")
    expect(reply(page)).to_have_attribute("data-message", last)
    expect(page.locator("article.reply")).to_have_count(1)


def test_it_edits_an_earlier_prompt_into_a_branch_of_its_own(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "one", "two", "three")
    edit(page, 1, "deux")
    expect(prompts(page)).to_have_text(["one", "deux"])
    expect(page.locator("article.prompt").last.locator(".place")).to_have_text("2/2")
    converse(page, "quatre")
    page.locator("article.prompt").nth(1).get_by_role("button", name="Previous version").click()
    expect(prompts(page)).to_have_text(["one", "two", "three"])
    page.reload()
    expect(prompts(page)).to_have_text(["one", "two", "three"])
    # What is asked now goes on from here.
    converse(page, "four")
    expect(prompts(page)).to_have_text(["one", "two", "three", "four"])
    page.locator("article.prompt").nth(1).get_by_role("button", name="Next version").click()
    expect(prompts(page)).to_have_text(["one", "deux", "quatre"])


def test_it_edits_the_first_prompt_and_gives_an_edit_up(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "  one\n& <b>")
    button = page.locator("article.prompt").get_by_role("button", name="Edit")
    box = page.locator("article.prompt textarea")
    button.focus()
    page.keyboard.press("Enter")
    expect(box).to_be_focused()
    expect(box).to_have_value("  one\n& <b>")
    box.fill("")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel").click()
    expect(box).to_have_count(0)
    expect(prompts(page)).to_have_text("one & <b>")
    button.click()
    box.fill("uno")
    page.keyboard.press("Control+Enter")
    expect(prompts(page)).to_have_text("uno")
    expect_state(page, "finished")
    expect(page.locator("article.prompt .place")).to_have_text("2/2")
    expect(text_of(page)).to_contain_text("uno")


def test_it_keeps_an_edit_that_was_refused(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "one")
    page.locator("article.prompt").get_by_role("button", name="Edit").click()
    page.locator("article.prompt textarea").fill("x" * 100_001)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#composer-error")).to_contain_text("100,001 characters")
    expect(page.locator("article.prompt textarea")).to_have_value("x" * 100_001)
    expect(page.get_by_role("button", name="Save")).to_be_enabled()


def test_it_shows_another_tab_what_was_asked_on_another_branch(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "one", "two")
    other = page.context.new_page()
    other.goto(page.url)
    expect(prompts(other)).to_have_text(["one", "two"])
    edit(page, 0, "uno")
    expect(prompts(other)).to_have_text(["uno"])
    expect_state(other, "finished")
    # Here the branch is another one before something is asked on it: the other tab shows none of it yet.
    page.locator("article.prompt").get_by_role("button", name="Previous version").click()
    expect(prompts(page)).to_have_text(["one", "two"])
    converse(page, "three")
    expect(prompts(other)).to_have_text(["one", "two", "three"])
    expect(other.locator(".blocks").last).to_have_text(text_of(page).inner_text())


def test_it_steps_away_from_a_growing_reply_and_back(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    converse(page, "short")
    page.locator("#model").select_option("slow")
    reply(page).get_by_role("button", name="Try again").click()
    expect_begun(page, "short short short")
    reply(page).get_by_role("button", name="Previous version").click()
    expect(reply(page).locator(".place")).to_have_text("1/2")
    expect(page.locator("#stop")).to_be_hidden()
    # A reload stays here, though the other reply still grows.
    page.reload()
    expect(reply(page).locator(".place")).to_have_text("1/2")
    expect(reply(page)).to_have_attribute("data-state", "finished")
    reply(page).get_by_role("button", name="Next version").click()
    expect_begun(page, "short short short")
    expect_state(page, "finished")
    assert text_of(page).inner_text().split() == ["short"] * 64


def test_it_goes_on_with_a_cut_reply_of_a_branch(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, numbered(80))
    edit(page, 0, numbered(80, "v"))
    expect(reply(page).locator(".outcome")).to_contain_text("ended at its length")
    reply(page).get_by_role("button", name="Continue").click()
    expect(text_of(page)).to_contain_text("v80")
    expect_state(page, "finished")
    expect(text_of(page)).to_contain_text(numbered(80, "v"))
    page.locator("article.prompt").get_by_role("button", name="Previous version").click()
    expect(text_of(page)).to_have_text(numbered(64))


def test_it_clears_the_context_and_takes_that_back(visit: Callable[..., Page]) -> None:
    page = visit()
    button, line = page.locator("#clear-context"), page.locator(".cleared")
    expect(button).to_be_hidden()
    converse(page, "one")
    button.click()
    expect(line).to_contain_text("Context cleared")
    expect(button).to_be_hidden()
    line.get_by_role("button", name="Undo").click()
    expect(line).to_have_count(0)
    button.click()
    expect(line).to_be_visible()
    page.reload()
    expect(line).to_be_visible()
    converse(page, "two")
    expect(line).to_be_visible()
    expect(line.get_by_role("button")).to_be_hidden()
    expect(button).to_be_visible()


def test_it_keeps_a_thumb_and_a_word_and_takes_them_back(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "one")
    up, down = (reply(page).get_by_role("button", name=name) for name in ("Good reply", "Bad reply"))
    up.click()
    expect(up).to_have_attribute("aria-pressed", "true")
    down.click()
    expect(up).to_have_attribute("aria-pressed", "false")
    expect(down).to_have_attribute("aria-pressed", "true")
    page.get_by_role("textbox", name="Why").fill("too short")
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Why")).to_have_count(0)
    page.reload()
    expect(down).to_have_attribute("aria-pressed", "true")
    expect(reply(page)).to_have_attribute("data-word", "too short")
    down.click()
    expect(down).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(down).to_have_attribute("aria-pressed", "false")


def test_it_says_that_a_thumb_did_not_arrive(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    page = person.page
    converse(page, "one")
    person.tolerated += ["ERR_FAILED", "net::ERR"]
    page.route("**/feedback/", lambda route: route.abort())
    reply(page).get_by_role("button", name="Good reply").click()
    expect(page.locator("#composer-error")).to_contain_text("could not be done")
    expect(reply(page).get_by_role("button", name="Good reply")).to_have_attribute("aria-pressed", "false")


def test_it_copies_a_reply_as_it_is_stored(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site, permissions=["clipboard-read", "clipboard-write"]).page
    converse(page, "**bold** `code` & <b>")
    stored = " ".join(["**bold**", "`code`", "&", "<b>"] * 16)
    reply(page).get_by_role("button", name="Copy reply").click()
    expect(page.locator("#live")).to_have_text("Reply copied")
    assert page.evaluate("navigator.clipboard.readText()") == stored


def test_it_says_that_it_stops_until_the_reply_has_ended(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    say(page, numbered())
    expect_begun(page)
    shown = text_of(page).inner_text()
    page.evaluate(
        """() => {
          window.said = [];
          const status = document.querySelector(".reply .status");
          const look = () => window.said.push([status.textContent, status.hidden]);
          new MutationObserver(look).observe(status, {childList: true, attributes: true});
        }"""
    )
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    said = page.evaluate("window.said")
    assert ["stopping…", False] in said and said[-1][1]
    assert text_of(page).inner_text().startswith(shown)


def test_its_buttons_are_quiet_until_looked_for_and_always_there_for_a_finger(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "one", "two")
    button = page.locator("article.prompt").first.get_by_role("button", name="Edit")
    expect(button).to_have_css("opacity", "0")
    button.focus()
    expect(button).to_have_css("opacity", "1")
    page.locator("#prompt").focus()
    expect(button).to_have_css("opacity", "0")
    page.locator("article.prompt").first.hover()
    expect(button).to_have_css("opacity", "1")
    phone = visit(viewport=PHONE, is_mobile=True, has_touch=True)
    converse(phone, "one", "two")
    expect(phone.locator("article.prompt").first.get_by_role("button", name="Edit")).to_have_css("opacity", "1")


def test_it_fits_a_phone_with_everything_open(visit: Callable[..., Page]) -> None:
    page = visit(viewport=PHONE, is_mobile=True, has_touch=True)
    converse(page, "w" * 300, "two")
    reply(page).get_by_role("button", name="Try again").click()
    expect(reply(page).locator(".place")).to_have_text("2/2")
    expect_state(page, "finished")
    page.locator("article.prompt").first.get_by_role("button", name="Edit").click()
    reply(page).get_by_role("button", name="Bad reply").click()
    expect(page.get_by_role("textbox", name="Why")).to_be_visible()
    page.locator("#clear-context").click()
    expect(page.locator(".cleared")).to_be_visible()
    expect_no_sideways_scrolling(page)
    sizes = page.locator("#thread button:visible").evaluate_all("(all) => all.map((each) => each.clientHeight)")
    assert min(sizes) >= 24


def test_each_button_has_a_name_and_a_title(visit: Callable[..., Page]) -> None:
    page = visit()
    converse(page, "one")
    reply(page).get_by_role("button", name="Try again").click()
    expect(reply(page).locator(".place")).to_have_text("2/2")
    expect_state(page, "finished")
    for button in page.locator(".tools button, #clear-context").all():
        assert button.get_attribute("aria-label") and button.get_attribute("title")
    expect_whole(page, re.sub(r"\s+", " ", "one " * 64).strip())
