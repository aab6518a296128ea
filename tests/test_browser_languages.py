"""Languages in a real browser: choosing one, and no text on any page that a catalogue doesn't have."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from generation.consumers import NOT_FOUND, TOO_MANY_SOCKETS
from tests.browser import Person, expect_begun, expect_state, numbered, reply, say
from tests.chat.sockets import rows
from tests.languages.brackets import LANGUAGE, bare, unbracketed, write
from tests.site import Site, running
from tests.test_browser_keeping import bring_in, exported

SignIn = Callable[..., Person]
CUT = 4000
"""A close code that nobody gives a meaning to."""
CODE = "```python\nprint()\n```"


@pytest.fixture(scope="module")
def bracketed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(
        tmp_path_factory.mktemp("bracketed"),
        "--concurrency",
        "1",
        "--no-flower",
        DJANGO_SETTINGS_MODULE="tests.languages.settings",
        GENERATION_MODELS="mock=mock:?rate=50&context=80 slow=mock:?rate=4",
        GENERATION_MAX_PROMPT_CHARS="500",
    )
    write(site.var / "brackets")
    with running(site):
        yield site


@pytest.fixture
def person(bracketed: Site, sign_in: SignIn) -> Person:
    return sign_in(bracketed, locale=LANGUAGE)


def expect_all_bracketed(page: Page) -> None:
    assert unbracketed(page) == []


def test_brackets_tell_a_bare_text_from_a_translated_one() -> None:
    assert bare("⟦failed: ⟦It is ⟦3rd⟧⟧ (code)⟧ · 12 · Tokenline") == ""
    assert bare("⟦Send⟧ it") == "it"


def test_a_language_is_chosen_in_the_menu_and_the_draft_stays(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    page.locator("#prompt").fill("a draft")
    page.locator("#account summary").click()
    page.get_by_role("button", name="日本語").click()
    expect(page.locator("html")).to_have_attribute("lang", "ja")
    expect(page.locator("#prompt")).to_have_value("a draft")
    expect(page.locator("#prompt")).to_have_attribute("placeholder", "質問を入力")
    page.locator("#prompt").press("Enter")
    expect_state(page, "finished")
    expect(reply(page).locator(".outcome")).to_contain_text("トークン")
    said = reply(page).locator(".outcome").inner_text()
    page.reload()
    expect(reply(page).locator(".outcome")).to_have_text(said)
    page.locator("#account summary").click()
    page.get_by_role("button", name="English").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_the_place_in_line_is_told_in_the_readers_language(slow_site: Site, sign_in: SignIn) -> None:
    first, second, third = (sign_in(slow_site, locale=locale).page for locale in ("en", "en", "ja"))
    for page in (first, second):
        say(page, numbered())
        expect_begun(page, "w1")
    say(third, "w1 w2")
    expect(reply(third).locator(".status")).to_contain_text("次の番です")
    for page in (first, second, third):
        expect_state(page, "finished")


def test_no_text_is_bare_before_signing_in(bracketed: Site, person: Person) -> None:
    person.tolerated.append("40[34]")
    page = person.page
    page.goto(f"{bracketed.url}/nowhere/")
    expect_all_bracketed(page)
    page.goto(f"{bracketed.url}/accounts/password/")
    page.locator("[type=password]").first.fill("short")
    page.locator("[type=password]").last.fill("other")
    page.locator(".card [type=submit]").click()
    expect(page.locator(".error").first).to_be_visible()
    expect_all_bracketed(page)
    page.goto(f"{bracketed.url}/accounts/link/?sesame=old")
    expect_all_bracketed(page)
    page.goto(f"{bracketed.url}/")
    page.locator("#account summary").click()
    page.locator("#account form").last.locator("button").click()
    expect(page).to_have_title("⟦Sign in⟧ · Tokenline")
    page.locator("[name=username]").fill("nobody")
    page.locator("[name=password]").fill("wrong")
    page.locator(".card [type=submit]").click()
    expect(page.locator(".error")).to_be_visible()
    expect_all_bracketed(page)


def test_no_text_of_a_conversation_is_bare(bracketed: Site, person: Person) -> None:
    page = person.page
    expect(page.locator("#model")).to_be_visible()
    expect_all_bracketed(page)
    page.locator("#prompt").fill("x" * 501)
    expect(page.locator("#composer-error")).to_contain_text("501")
    expect_all_bracketed(page)
    say(page, "one two")
    expect_state(page, "finished")
    expect_all_bracketed(page)
    say(page, "w " * 100)
    expect_state(page, "failed")
    expect(reply(page).locator(".outcome")).to_contain_text("100")
    expect_all_bracketed(page)
    page.reload()
    expect_all_bracketed(page)
    assert bracketed.manage("queue", "pause").returncode == 0
    say(page, "three")
    expect(reply(page).locator(".status")).to_have_text("⟦paused⟧")
    expect_all_bracketed(page)
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    assert bracketed.manage("queue", "resume").returncode == 0
    expect_all_bracketed(page)
    page.locator("#model").select_option("slow")
    say(page, numbered(8))
    expect_begun(page, "w2")
    other, last = person.tab(bracketed.url), person.tab(bracketed.url)
    for tab, place in ((other, "⟦next in line⟧"), (last, "⟧ in line")):
        say(tab, "in line")
        expect(reply(tab).locator(".status")).to_contain_text(place)
        expect_all_bracketed(tab)
    for each in (page, other, last):
        expect_state(each, "finished")
    rows(bracketed, "UPDATE generation_job SET finish_reason = 'length', dropped_messages = 3")
    other.reload()
    expect(other.locator("[data-ask=continue]")).to_be_visible()
    expect_all_bracketed(other)


def test_no_text_of_what_is_done_with_messages_is_bare(person: Person) -> None:
    page = person.page
    say(page, "one two")
    expect_state(page, "finished")
    page.locator("[data-ask=regenerate]").click()
    expect(page.locator(".stepper")).to_be_visible()
    expect_state(page, "finished")
    reply(page).hover()
    for turn, said in (("copy", "Reply copied"), ("previous", "Version 1 of 2"), ("down", "Thank you")):
        page.locator(f"article.reply [data-turn={turn}]").click()
        expect(page.locator("#live")).to_have_text(f"⟦{said}⟧")
        expect_all_bracketed(page)
    page.locator("#clear-context").click()
    expect(page.locator(".cleared")).to_be_visible()
    page.locator("article.prompt").hover()
    page.locator("[data-turn=edit]").click()
    expect_all_bracketed(page)


def test_no_text_of_the_list_and_the_search_is_bare(bracketed: Site, person: Person) -> None:
    page = person.page
    person.tolerated.append("400")
    bring_in(page, {"format": "other"})
    expect(page.locator("#toast")).to_contain_text("⟦Not imported.⟧ ⟦This is no export of conversations.⟧")
    bring_in(page, exported(*(f"Number {number}." for number in range(60)), text=CODE))
    expect(page.locator("#toast")).to_have_text("⟦60 conversations were imported.⟧")
    page.locator("#account summary").click()
    expect_all_bracketed(page)
    page.locator("#conversations .options").first.click()
    page.get_by_role("menuitem").nth(1).click()
    expect(page.locator("[data-group=Pinned]")).to_be_visible()
    page.locator("#conversations .options").first.click()
    expect_all_bracketed(page)
    page.get_by_role("menuitem").first.click()
    expect(page.locator(".rename")).to_be_focused()
    page.keyboard.press("Escape")
    page.locator("#conversations .options").first.click()
    page.get_by_role("menuitem").last.click()
    expect(page.locator("#toast button")).to_have_text("⟦Undo⟧")
    expect_all_bracketed(page)
    for asked in ("print", "nothing like it"):
        page.goto(f"{bracketed.url}/search/?q={asked}")
        expect_all_bracketed(page)


def test_no_text_about_the_connection_is_bare(bracketed: Site, person: Person) -> None:
    person.tolerated += ["WebSocket connection to .* failed", "ERR_INTERNET_DISCONNECTED"]
    page, lines, is_away = person.page, list[WebSocketRoute](), [False]

    def pass_on(line: WebSocketRoute) -> None:
        if is_away[0]:
            line.close(code=CUT)
            return
        line.connect_to_server()
        lines.append(line)

    person.context.route_web_socket(re.compile("/ws/chat/"), pass_on)
    page.reload()
    say(page, "one")
    expect_state(page, "finished")
    banner = page.locator("#banner")
    is_away[0] = True
    lines[-1].close(code=CUT)
    expect(banner).to_contain_text("⟦Connection lost, trying again⟧")
    say(page, "two")
    expect(page.locator("#composer-hint")).not_to_be_empty()
    expect_all_bracketed(page)
    is_away[0] = False
    expect(banner).to_have_text("⟦Connected again⟧")
    expect_state(page, "finished")
    lines[-1].close(code=TOO_MANY_SOCKETS)
    expect(banner).to_contain_text("⟦Tokenline is open in too many tabs.")
    expect_all_bracketed(page)
    page.context.set_offline(True)
    expect(banner).to_contain_text("⟦You are offline.")
    expect_all_bracketed(page)
    page.context.set_offline(False)
    expect(banner).to_be_empty()
    lines[-1].close(code=NOT_FOUND)
    expect(banner).to_contain_text("⟦Begin a new one⟧")
    expect_all_bracketed(page)
    page.reload()
    expect(page.locator("#stop")).to_be_hidden()
    rows(bracketed, "DELETE FROM django_session")
    expect(banner).to_contain_text("⟦Sign in⟧")
    expect_all_bracketed(page)
