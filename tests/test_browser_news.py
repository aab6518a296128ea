"""What an open page is told beside replies: a new title, and what another tab did with a message."""

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser import Person, expect_state, reply, say
from tests.site import Site

SignIn = Callable[..., Person]

TAKE = """
import json
from chatsite.chat import titles
from chatsite.chat.models import Conversation
from generation.models import Job

name, written = json.loads({arguments!r})
conversation = Conversation.objects.get(user__username=name)
titles.take(conversation.pk, Job(user_id=conversation.user_id, text=written, finish_reason="stop"))
"""


@pytest.fixture
def person(site: Site, sign_in: SignIn) -> Person:
    """Somebody with one finished reply."""
    person = sign_in(site)
    say(person.page, "How do rainbows form?")
    expect_state(person.page, "finished")
    return person


@pytest.fixture
def other(person: Person) -> Page:
    """The same conversation in another tab, connected."""
    page = person.tab(person.page.url)
    expect(page.locator("#prompt")).to_be_visible()
    page.wait_for_load_state("networkidle")
    return page


def expect_titled(page: Page, title: str) -> None:
    expect(page.locator("#title")).to_have_text(title)
    expect(page.locator("#conversations a[aria-current]")).to_have_text(title)
    expect(page.get_by_role("button", name=f"Options of {title}")).to_be_attached()
    expect(page).to_have_title(f"{title} · Tokenline")


def test_it_shows_the_title_that_the_model_made(site: Site, person: Person) -> None:
    """It stood there only after a reload."""
    expect_titled(person.page, "How do rainbows form?")
    done = site.manage("shell", "--no-imports", "-c", TAKE.format(arguments=json.dumps([person.name, "Light in rain"])))
    assert done.returncode == 0, done.stderr
    expect_titled(person.page, "Light in rain")


def test_it_shows_what_another_tab_named_the_conversation(person: Person, other: Page) -> None:
    item = other.locator("#conversations li").first
    item.hover()
    item.get_by_role("button").click()
    other.get_by_role("menuitem", name="Rename").click()
    other.keyboard.type("Mine")
    other.keyboard.press("Enter")
    for page in (other, person.page):
        expect_titled(page, "Mine")


def test_it_shows_a_title_that_came_while_the_connection_was_lost(site: Site, person: Person) -> None:
    person.tolerated.append("ERR_INTERNET_DISCONNECTED")
    person.context.set_offline(True)
    expect(person.page.locator("#banner")).to_contain_text("offline")
    site.manage("shell", "--no-imports", "-c", TAKE.format(arguments=json.dumps([person.name, "Light in rain"])))
    person.context.set_offline(False)
    expect_titled(person.page, "Light in rain")


def test_it_shows_a_thumb_of_another_tab(person: Person, other: Page) -> None:
    for pressed in ("true", "false"):
        reply(other).get_by_role("button", name="Good reply").click()
        thumb = reply(person.page).get_by_role("button", name="Good reply")
        expect(thumb).to_have_attribute("aria-pressed", pressed)


def test_it_shows_a_context_that_another_tab_cleared(person: Person, other: Page) -> None:
    other.locator("#clear-context").click()
    expect(person.page.locator(".cleared")).to_be_visible()
    other.get_by_role("button", name="Undo").click()
    expect(person.page.locator(".cleared")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Why is **the sky** `blue`?", "Why is the sky blue?"),
        ("```python\nprint(2*3*4)\n```\nWhat does [this](https://example.org) do?", "print(2*3*4)"),
        ("- **これ**は*何*ですか", "これは何ですか"),
        ("What does __init__ do in C#?", "What does __init__ do in C#?"),
        ("***", "***"),
    ],
)
def test_it_titles_a_conversation_as_the_server_does(site: Site, sign_in: SignIn, text: str, title: str) -> None:
    page = sign_in(site).page
    page.locator("#prompt").fill(text)
    page.locator("#send").click()
    expect_state(page, "finished")
    expect_titled(page, title)
    page.reload()
    expect_titled(page, title)
