"""What the page says of a model that can't be had, where a prompt is written and as the end of one that waits; and of
one that can't hold the conversation any more.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.browser import Person, expect_state, reply, say
from tests.site import Site

LOST = ["WebSocket connection to .* failed", "ERR_CONNECTION_REFUSED"]


def test_it_says_why_a_model_can_not_be_had(
    start_site: Callable[..., Site], sign_in: Callable[..., Person], tmp_path: Path
) -> None:
    """The operator removes one model, whose prompts wait, and breaks another one."""
    lease = {"GENERATION_LEASE_SECONDS": "1"}
    site = start_site(tmp_path, "--no-flower", GENERATION_MODELS="mock=mock: gone=mock:", **lease)
    assert site.manage("queue", "pause").returncode == 0
    person = sign_in(site)
    person.tolerated += LOST
    page = person.page
    page.locator("#model").select_option("gone")
    say(page, "is anybody there?")
    expect_state(page, "queued")
    port = str(urlsplit(site.url).port)
    assert site.stop() == 0

    models = "mock=mock: broken=/nowhere/model.gguf"
    site = start_site(tmp_path, "--no-flower", "--port", port, GENERATION_MODELS=models, **lease)
    site.lines.wait_for("warning: 1 job waits for model gone of queue gpu, which nobody has")
    assert site.manage("queue", "resume").returncode == 0
    expect_state(page, "failed")
    expect(reply(page).locator(".outcome")).to_have_text(
        "failed: The model gone is no longer offered here. (model_unavailable)"
    )

    page.reload()
    expect(reply(page).locator(".meta")).to_contain_text("The model gone is no longer offered here.")
    page.locator("#model").select_option("broken")
    say(page, "and you?")
    expect(page.locator("#composer-error")).to_have_text("The model broken could not be loaded: its files are missing.")
    expect(page.locator("#prompt")).to_have_value("and you?")


def test_it_says_how_many_messages_no_longer_fit(
    start_site: Callable[..., Site], sign_in: Callable[..., Person], tmp_path: Path
) -> None:
    page = sign_in(start_site(tmp_path, "--no-flower", GENERATION_MODELS="mock=mock:?rate=500&context=40")).page
    say(page, "one two three four five six seven eight nine ten")
    expect_state(page, "finished")
    expect(reply(page).locator(".outcome")).not_to_contain_text("left out")
    expect(page.locator("#context")).to_have_text("40 of 40 tokens")
    expect(page.locator("#context meter")).to_have_js_property("value", 40)
    expect(page.locator("#context-word")).to_contain_text("Past its end it no longer reads the oldest messages.")
    say(page, "and now something else")
    told = page.locator("#context-word")
    expect(told).to_have_text("The model's context is full: it no longer reads the oldest 2 messages.")
    outcome = page.locator(".reply .outcome").nth(1)
    expect(outcome).to_contain_text("· the oldest 2 messages no longer fit and were left out")
    said = outcome.text_content()
    page.reload()
    expect(outcome).to_have_text(said or "")
    expect(told).to_contain_text("the oldest 2 messages")
    page.get_by_role("button", name="Clear context").click()
    expect(told).to_be_empty()
    expect(page.locator("#context")).to_be_hidden()
