"""The list of conversations in a real browser: its menu, pages, search and files."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import Person, expect_state, say
from tests.site import Site
from tests.test_browser_looks import PHONE, expect_no_sideways_scrolling

SignIn = Callable[..., Person]
AT = "2025-03-0{}T12:00:00Z"


def entry(page: Page, title: str) -> Locator:
    return page.locator("nav#conversations li").filter(has_text=title)


def options(page: Page, title: str) -> Locator:
    return page.get_by_role("button", name=f"Options of {title}")


def choose(page: Page, title: str, choice: str) -> None:
    entry(page, title).hover()
    options(page, title).click()
    page.get_by_role("menuitem", name=choice, exact=True).click()


def exported(*titles: str, text: str = "palimpsest") -> dict[str, object]:
    message = {"id": "1", "parent": None, "role": "user", "text": text, "created_at": AT.format(1)}
    each = {"created_at": AT.format(1), "updated_at": AT.format(2), "pinned": False, "messages": [message]}
    return {
        "format": "tokenline-conversations",
        "version": 1,
        "conversations": [{"title": title, **each} for title in titles],
    }


def bring_in(page: Page, file: object) -> None:
    content = json.dumps(file).encode()
    page.locator("#import-file").set_input_files(
        {"name": "export.json", "mimeType": "application/json", "buffer": content}
    )


@pytest.fixture
def person(site: Site, sign_in: SignIn) -> Person:
    """Somebody with three old conversations."""
    person = sign_in(site)
    bring_in(person.page, exported("Alpha", "Beta", "Gamma"))
    expect(person.page.locator("#toast")).to_have_text("3 conversations were imported.")
    expect(entry(person.page, "Alpha")).to_be_visible()
    return person


def test_it_renames_in_place_and_keeps_the_old_title_on_escape(person: Person) -> None:
    page = person.page
    choose(page, "Alpha", "Rename")
    page.keyboard.type("Omega <b>")
    page.keyboard.press("Escape")
    expect(entry(page, "Alpha")).to_be_visible()
    choose(page, "Alpha", "Rename")
    with page.expect_response("**/rename/"):
        page.keyboard.type("Omega <b>")
        page.keyboard.press("Enter")
    expect(entry(page, "Omega <b>").get_by_role("link")).to_be_focused()
    page.reload()
    expect(entry(page, "Omega <b>")).to_be_visible()
    expect(entry(page, "Alpha")).to_have_count(0)


def test_it_pins_to_the_top_and_unpins(person: Person) -> None:
    page = person.page
    first = page.locator("nav#conversations section").first
    expect(first).to_have_attribute("data-group", "March 2025")
    choose(page, "Beta", "Pin")
    expect(first).to_have_attribute("data-group", "Pinned")
    expect(first.get_by_role("link")).to_have_text("Beta")
    expect(options(page, "Beta")).to_be_focused()
    choose(page, "Beta", "Unpin")
    expect(first).to_have_attribute("data-group", "March 2025")


def test_it_deletes_and_takes_it_back(person: Person) -> None:
    page = person.page
    choose(page, "Beta", "Delete")
    expect(entry(page, "Beta")).to_have_count(0)
    expect(page.locator("#toast")).to_contain_text("“Beta” was deleted.")
    page.get_by_role("button", name="Undo").click()
    expect(entry(page, "Beta")).to_be_visible()
    expect(page.locator("#toast")).to_be_empty()
    page.reload()
    expect(entry(page, "Beta")).to_be_visible()


def test_it_leaves_the_page_of_a_deleted_conversation_and_comes_back_to_it(person: Person) -> None:
    page = person.page
    entry(page, "Gamma").get_by_role("link").click()
    expect(page.locator("article.prompt")).to_have_text("palimpsest")
    address = page.url
    choose(page, "Gamma", "Delete")
    expect(page).to_have_url(re.compile(r"/$"))
    expect(page.locator("#empty")).to_be_visible()
    expect(entry(page, "Gamma")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page).to_have_url(address)
    expect(page.locator("article.prompt")).to_have_text("palimpsest")


def test_its_menu_is_worked_by_keyboard(person: Person) -> None:
    page = person.page
    button = options(page, "Alpha")
    expect(button).to_have_attribute("aria-haspopup", "menu")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "false")


def test_escape_closes_a_menu_that_the_pointer_opened_and_not_the_drawer_around_it(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site, viewport=PHONE)
    say(person.page, "hello")
    expect_state(person.page, "finished")
    person.page.locator("#open-sidebar").click()
    person.page.locator("#conversations .options").first.click()
    expect(person.page.get_by_role("menu")).to_be_visible()
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("menu")).to_have_count(0)
    expect(person.page.locator("#conversations .options").first).to_be_focused()


def test_a_new_conversation_has_a_menu_at_once(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    say(page, "brand new words")
    expect_state(page, "finished")
    choose(page, "brand new words", "Rename")
    page.keyboard.type("Renamed")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Renamed")
    expect(page).to_have_title(re.compile("^Renamed"))


def test_it_shows_older_conversations_when_the_list_is_scrolled(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    bring_in(page, exported(*(f"Number {number}." for number in range(120))))
    links = page.locator("nav#conversations a")
    expect(links).to_have_count(50)
    page.locator("#older").scroll_into_view_if_needed()
    expect(links).to_have_count(100)
    page.locator("#older").scroll_into_view_if_needed()
    expect(links).to_have_count(120)
    expect(page.locator("#older")).to_have_count(0)
    expect(page.locator("nav#conversations h2")).to_have_text(["March 2025"])


def test_it_finds_a_text_and_marks_it(person: Person) -> None:
    page = person.page
    page.get_by_role("searchbox", name="Search in conversations").fill("palimp")
    page.keyboard.press("Enter")
    expect(page.locator("#results li")).to_have_count(3)
    expect(page.locator("#results mark").first).to_have_text("palimpsest")
    expect(entry(page, "Alpha")).to_be_visible()
    page.locator("#results li a", has_text="Alpha").click()
    expect(page.locator("article.prompt")).to_have_text("palimpsest")


def test_it_saves_a_file_that_it_takes_in_again_and_says_what_is_wrong_with_another(
    person: Person, tmp_path: Path
) -> None:
    page = person.page
    page.locator("#account summary").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all as JSON").click()
    saved = tmp_path / "export.json"
    download.value.save_as(saved)
    assert len(json.loads(saved.read_text())["conversations"]) == 3
    person.tolerated.append("400")
    bring_in(page, {"format": "other"})
    expect(page.locator("#toast")).to_have_text("Not imported. This is no export of conversations.")
    bring_in(page, json.loads(saved.read_text()))
    expect(page.locator("nav#conversations a")).to_have_count(6)


def test_it_says_that_something_was_not_done(person: Person) -> None:
    page = person.page
    person.tolerated += ["ERR_FAILED"]
    page.route("**/delete/", lambda route: route.abort())
    choose(page, "Alpha", "Delete")
    expect(page.locator("#toast")).to_contain_text("Not deleted.")
    expect(entry(page, "Alpha")).to_be_visible()


def test_it_fits_a_phone(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site, viewport=PHONE, is_mobile=True, has_touch=True).page
    long = "Wide" * 40
    bring_in(page, exported(long, text="palimpsest " + "a" * 300))
    page.get_by_role("button", name="Conversations").click()
    expect(entry(page, long)).to_be_in_viewport()
    options(page, long).tap()
    menu = page.get_by_role("menu")
    box = menu.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    expect_no_sideways_scrolling(page)
    page.get_by_role("menuitem", name="Rename").tap()
    expect_no_sideways_scrolling(page)
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).to_be_in_viewport()  # one Escape closes one thing
    page.get_by_role("searchbox", name="Search in conversations").fill("palimpsest")
    page.keyboard.press("Enter")
    expect(page.locator("#results li")).to_have_count(1)
    expect_no_sideways_scrolling(page)
