"""Markdown in a real browser: what a growing reply looks like, what a stored one does, and what never runs."""

import json
import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser import Person, expect_state, reply, say, text_of
from tests.site import Site

SignIn = Callable[..., Person]

DOCUMENT = """# Rainbows

Seen *after* rain, with **six** or `seven` colours and $n_1 < n_2$:

| colour | nm |
|--------|---:|
| red    | 700 |
| violet | 400 |

1. sun
2. water
   - drops

```python
def bend(angle: float) -> float:
    return angle * 0.75  # <b>roughly</b>
```

$$\\frac{\\sin a}{\\sin b} = \\frac{n_2}{n_1}$$

> seen from behind

<img src=x onerror="document.title='run'"> <script>document.title='run'</script>

[press](javascript:document.title='run') [read](https://example.org/)

The end has **one"""
"""Ends in the middle of a bold word, so that what is said next still changes the last block."""

STORE = """
import json, sys
from django.contrib.auth.models import User
from django.utils import timezone
from chatsite.chat.models import Conversation, Message, ReplyJob
from generation.models import Job, Queue

text, name = json.loads({arguments!r})
user, queue = User.objects.get(username=name), Queue.objects.get_or_create(name="gpu")[0]
conversation = Conversation.objects.create(user=user, title="stored")
question = Message.objects.create(conversation=conversation, role="user", text="word** and more")
answer = Message.objects.create(conversation=conversation, role="assistant", parent=question)
now = timezone.now()
job = Job.objects.create(
    user=user, queue=queue, model="mock", messages=[dict(role="user", content=question.text)], state="finished",
    arrival=0, order_key=0, text=text, finish_reason="length", completion_tokens=9, created_at=now, queued_at=now,
    ended_at=now,
)
ReplyJob.objects.create(message=answer, job=job)
print(conversation.get_absolute_url())
"""


def open_stored(site: Site, person: Person, text: str) -> Page:
    """A conversation whose only reply is this text and ended at its length."""
    code = STORE.format(arguments=json.dumps([text, person.name]))
    done = site.manage("shell", "--no-imports", "-c", code)
    assert done.returncode == 0, done.stderr
    person.page.goto(site.url + done.stdout.split()[-1])
    return person.page


def expect_document(page: Page) -> None:
    blocks = text_of(page)
    expect(blocks.locator("h1")).to_have_text("Rainbows")
    expect(blocks.locator("table tbody tr").nth(1).locator("td")).to_have_text(["violet", "400"])
    expect(blocks.locator("ol > li ul > li")).to_have_text("drops")
    expect(blocks.locator(".code .lang")).to_have_text("python")
    expect(blocks.locator(".code pre span").first).to_have_text("def")
    expect(blocks.locator(".code pre")).to_contain_text("# <b>roughly</b>")
    expect(blocks.locator("math")).to_have_count(2)
    expect(blocks.locator("mfrac").first).to_be_attached()
    expect(blocks.locator("blockquote")).to_have_text("seen from behind")
    expect_nothing_ran(page)


def expect_nothing_ran(page: Page) -> None:
    """Markup that a model wrote is shown as it was written."""
    blocks = text_of(page)
    expect(blocks).to_contain_text("<img src=x onerror=")
    expect(blocks).to_contain_text("javascript:")
    expect(blocks.locator("img, script, [onerror], a[href^='javascript']")).to_have_count(0)
    assert page.title() != "run"


def test_it_renders_blocks_of_a_stored_reply_and_of_one_that_goes_on(slow_site: Site, sign_in: SignIn) -> None:
    """`Continue` streams the whole reply again, so that every kind of block is seen live too."""
    page = open_stored(slow_site, sign_in(slow_site), DOCUMENT)
    expect_document(page)
    link = text_of(page).get_by_role("link", name="read")
    expect(link).to_have_attribute("href", "https://example.org/")
    expect(link).to_have_attribute("rel", re.compile("noopener"))
    page.get_by_role("button", name="Continue").click()
    expect(reply(page)).to_have_attribute("aria-busy", "true")
    expect_document(page)
    expect_state(page, "finished")
    expect(reply(page).locator(".outcome")).to_contain_text("tokens/s")
    expect_document(page)
    expect(text_of(page).locator("strong").last).to_contain_text("one")
    shown = text_of(page).inner_html()
    page.reload()
    expect_document(page)
    assert text_of(page).inner_html() == shown


def test_it_shows_live_what_one_line_of_markdown_can_be(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    vectors = "<img src=x onerror=document.title='run'> [press](javascript:document.title='run')"
    say(page, f"# Soon **bold** and `code` and $x^2$ then {vectors}")
    expect(text_of(page).locator("h1 strong").first).to_have_text("bold")
    expect(reply(page)).to_have_attribute("data-state", "running")
    expect_state(page, "finished")
    expect(text_of(page).locator("h1 code").first).to_have_text("code")
    expect(text_of(page).locator("h1 msup").first).to_be_attached()
    expect_nothing_ran(page)
    shown = text_of(page).inner_html()
    page.reload()
    assert text_of(page).inner_html() == shown
    expect_nothing_ran(page)
    # A person's own words are never markup.
    expect(page.locator("article.prompt .text")).to_contain_text(f"# Soon **bold** and `code` and $x^2$ then {vectors}")
    expect(page.locator("nav#conversations a img, article.prompt img")).to_have_count(0)


def test_it_copies_a_block_of_code(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    person.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    page = open_stored(site, person, DOCUMENT)
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "def bend(angle: float) -> float:\n    return angle * 0.75  # <b>roughly</b>\n"


def test_its_formulas_have_a_font_for_formulas(site: Site, sign_in: SignIn) -> None:
    """Roots and fractions looked poor where the system has no such font."""
    person = sign_in(site)
    fetched: list[str] = []
    person.page.on("requestfinished", lambda request: fetched.append(request.url))
    page = open_stored(site, person, "no formula")
    page.wait_for_load_state("networkidle")
    assert not [address for address in fetched if "latin-modern-math" in address]
    open_stored(site, person, "$\\sqrt{x}$")
    page.wait_for_function(
        "[...document.fonts].some(({ family, status }) => /Math/.test(family) && status === 'loaded')"
    )
