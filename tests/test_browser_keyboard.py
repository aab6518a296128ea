"""The keyboard in the browser: each key that the help names, and the help itself."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PATIENCE, Person, expect_begun, expect_state, numbered, say, text_of
from tests.site import Site
from tests.test_browser_looks import PHONE

SignIn = Callable[..., Person]

STORE = """
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from chatsite.chat.models import Conversation

user = User.objects.get(username={name!r})
for number, title in enumerate(["first", "second", "third"]):
    made = Conversation.objects.create(user=user, title=title)
    Conversation.objects.filter(pk=made.pk).update(updated_at=timezone.now() - timedelta(minutes=number))
"""


@pytest.fixture
def page(site: Site, sign_in: SignIn) -> Page:
    """Of somebody who wrote nothing yet and whose composer isn't in focus."""
    page = sign_in(site).page
    page.keyboard.press("Escape")
    expect(page.locator("#prompt")).not_to_be_focused()
    return page


def open_list(site: Site, person: Person) -> Page:
    """Three conversations: first, second, third, from the newest on."""
    done = site.manage("shell", "--no-imports", "-c", STORE.format(name=person.name))
    assert done.returncode == 0, done.stderr
    person.page.reload()
    person.page.keyboard.press("Escape")
    return person.page


def test_it_shows_the_help_for_a_question_mark_and_closes_it_on_escape(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("?")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_hidden()


def test_it_shows_the_help_by_its_button_and_gives_the_focus_back(page: Page) -> None:
    page.locator("#account summary").click()
    page.get_by_role("button", name="Keyboard").click()
    expect(page.locator("#keys")).to_be_visible()
    page.locator("#keys").get_by_role("button", name="Close").click()
    expect(page.locator("#keys")).to_be_hidden()
    expect(page.locator("#account summary")).to_be_focused()


def test_it_shows_the_help_while_a_text_is_being_written(page: Page) -> None:
    page.locator("#prompt").fill("half a ")
    page.keyboard.press("Control+/")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#prompt")).to_be_focused()
    expect(page.locator("#prompt")).to_have_value("half a ")


def test_each_key_that_the_help_names_does_something(page: Page) -> None:
    """What has no test here isn't named."""
    named = page.locator("#keys [data-act] kbd").all_text_contents()
    assert named == ["n", "/", "l", "j", "k", "w", "s", "c", "g", "?"]


def test_it_writes_every_letter_into_the_composer(page: Page) -> None:
    """Keys that do something elsewhere are text where text is written."""
    page.keyboard.press("w")
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.type("n/ljkwscg?")
    expect(page.locator("#prompt")).to_have_value("n/ljkwscg?")
    expect(page.locator("#keys")).to_be_hidden()


def test_it_leaves_a_candidate_that_escape_gives_up_in_the_composer(page: Page) -> None:
    page.locator("#prompt").fill("にほん")
    page.locator("#prompt").evaluate(
        """(box) => box.dispatchEvent(
          new KeyboardEvent("keydown", { key: "Escape", isComposing: true, bubbles: true }))"""
    )
    expect(page.locator("#prompt")).to_be_focused()


def test_it_begins_a_new_conversation(site: Site, sign_in: SignIn) -> None:
    page = open_list(site, sign_in(site))
    page.locator("#conversations a").first.click()
    page.wait_for_url("**/c/*/")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page).to_have_url(site.url + "/")
    expect(page.locator("#prompt")).to_be_focused()


def test_it_goes_to_the_search_and_finds(site: Site, sign_in: SignIn) -> None:
    page = open_list(site, sign_in(site))
    page.keyboard.press("/")
    expect(page.locator("#search input")).to_be_focused()
    page.keyboard.type("second")
    page.keyboard.press("Enter")
    expect(page.locator("#results li")).to_have_count(1)
    page.wait_for_load_state()
    # The keys work there too, those of a conversation aside.
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    expect(page.locator('#keys [data-act="search"]')).to_be_visible()
    expect(page.locator('#keys [data-act="stop"]')).to_be_hidden()


def test_it_goes_through_the_conversations_key_by_key(site: Site, sign_in: SignIn) -> None:
    """The composer of the next page took the second press as text."""
    page = open_list(site, sign_in(site))
    for key, title in (("j", "first"), ("j", "second"), ("j", "third"), ("j", "third"), ("k", "second")):
        page.keyboard.press(key)
        expect(page.locator("#title")).to_have_text(title)
        page.wait_for_load_state()
        expect(page.locator("#prompt")).not_to_be_focused()
    expect(page.locator("#prompt")).to_have_value("")


def test_it_goes_to_the_list_and_opens_what_is_chosen_there(site: Site, sign_in: SignIn) -> None:
    page = open_list(site, sign_in(site))
    page.keyboard.press("l")
    expect(page.locator("#conversations a").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("first")


def test_it_stops_the_reply(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    say(page, numbered())
    expect_begun(page)
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    expect_state(page, "cancelled")


def test_it_copies_the_last_reply_that_has_ended(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    person.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    page = person.page
    say(page, numbered())
    expect_state(page, "finished")
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    expect(page.locator("#live")).to_have_text("Reply copied")
    assert page.evaluate("navigator.clipboard.readText()") == numbered()


UNTIL_AT_THE_TOP = """() => new Promise((done) => {
  const look = () => document.querySelector("#scroller").scrollTop ? requestAnimationFrame(look) : done();
  look();
})"""
"""The browser's own scrolling takes a while, and would go on over the page's."""


def test_it_goes_to_the_end_of_the_conversation(page: Page) -> None:
    say(page, "\n\n".join(["a line"] * 60))
    expect_state(page, "finished")
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    page.evaluate(UNTIL_AT_THE_TOP)
    expect(page.locator("#jump")).to_be_visible()
    page.keyboard.press("g")
    expect(page.locator("#jump")).to_be_hidden()
    expect(text_of(page)).to_be_in_viewport()


def test_single_keys_can_be_switched_off_and_stay_off(page: Page) -> None:
    """Whoever speaks to the computer types single letters by accident (WCAG 2.1.4)."""
    page.keyboard.press("?")
    page.get_by_label("Single keys").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    page.keyboard.press("?")
    expect(page.locator("#prompt")).not_to_be_focused()
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("Control+/")
    page.get_by_label("Single keys").check()
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    expect(page.locator("#prompt")).to_be_focused()


def test_it_leaves_the_browser_its_own_keys(page: Page) -> None:
    for modifier in ("Control", "Alt", "Meta"):
        for key in "njkwscgl":
            page.locator("body").evaluate(
                """(body, [key, modifier]) => {
                  const fields = { key, [modifier]: true, bubbles: true, cancelable: true };
                  window.taken = !body.dispatchEvent(new KeyboardEvent("keydown", fields));
                }""",
                [key, {"Control": "ctrlKey", "Alt": "altKey", "Meta": "metaKey"}[modifier]],
            )
            assert page.evaluate("window.taken") is False


def test_it_takes_a_letter_of_another_script_by_its_place(page: Page) -> None:
    page.locator("body").evaluate(
        """(body) => body.dispatchEvent(new KeyboardEvent("keydown", { key: "ц", code: "KeyW", bubbles: true }))"""
    )
    expect(page.locator("#prompt")).to_be_focused()


def test_the_keys_open_the_drawer_of_a_phone_and_keep_the_focus_in_it(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site, viewport=PHONE).page
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#search input")).to_be_focused()
    expect(page.locator("#search input")).to_be_in_viewport(ratio=1)
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.activeElement.closest('#main')")
    page.keyboard.press("Escape")
    expect(page.locator("#search input")).to_be_hidden()
    page.keyboard.press("Shift+Tab")
    expect(page).not_to_have_url(re.compile("search"), timeout=PATIENCE)
