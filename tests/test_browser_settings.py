"""What people set in the browser: the panel, by mouse, keyboard and on a phone; the model; how full the context is."""

import json
import re
from collections.abc import Callable
from uuid import UUID

from playwright.sync_api import Locator, Page, expect

from tests.browser import Person, expect_state, reply, say
from tests.chat.sockets import rows
from tests.site import Site
from tests.test_browser_looks import PHONE, expect_no_sideways_scrolling

SignIn = Callable[..., Person]


def open_panel(page: Page) -> Locator:
    panel = page.get_by_role("dialog", name="Settings")
    page.get_by_role("button", name=re.compile("^Settings")).click()
    expect(panel).to_be_visible()
    return panel


def save(panel: Locator) -> None:
    panel.get_by_role("button", name="Save").click()
    expect(panel).to_be_hidden()


def converse(page: Page, text: str) -> None:
    before = page.locator("article.reply").count()
    say(page, text)
    expect(page.locator("article.reply")).to_have_count(before + 1)
    expect_state(page, "finished")


def last_job(site: Site, page: Page) -> tuple[str, list[dict[str, str]], dict[str, object]]:
    """Of the last reply: the model, what it was given to read, the parameters."""
    job = UUID(reply(page).get_attribute("data-job") or "").hex
    [(model, messages, params)] = rows(site, "SELECT model, messages, params FROM generation_job WHERE id = ?", job)
    return model, json.loads(messages), json.loads(params)


def test_what_is_set_before_the_first_prompt_begins_the_conversation(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    panel = open_panel(page)
    panel.get_by_label("System prompt").fill("be kind")
    panel.get_by_label("Longest reply").fill("3")
    save(panel)
    page.reload()
    expect(page.get_by_role("button", name="Settings, changed")).to_be_visible()
    converse(page, "one two")
    _, messages, params = last_job(site, page)
    assert messages[0] == {"role": "system", "content": "be kind"}
    assert params["max_new_tokens"] == 3
    expect(page.locator("#context")).to_have_text("7 of 4,096 tokens")
    page.reload()
    expect(page.locator("#context")).to_have_text("7 of 4,096 tokens")
    expect(open_panel(page).get_by_label("System prompt")).to_have_value("be kind")
    page.goto(site.url)
    expect(page.get_by_role("button", name="Settings", exact=True)).to_be_visible()


def test_another_device_has_the_settings_and_new_conversations_the_default(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    page = person.page
    converse(page, "one two three")
    panel = open_panel(page)
    panel.get_by_label("Stop at").fill("three")
    panel.get_by_label("Also my default").check()
    save(panel)
    converse(page, "four three")
    expect(reply(page).locator(".blocks")).to_have_text("four")
    other = person.tab(site.url)
    expect(open_panel(other).get_by_label("Stop at")).to_have_value("three")
    other.keyboard.press("Escape")
    converse(other, "five three")
    expect(reply(other).locator(".blocks")).to_have_text("five")
    panel = open_panel(page)
    panel.get_by_role("button", name="Back to the defaults").click()
    expect(panel.get_by_label("Stop at")).to_have_value("")
    panel.get_by_role("button", name="My default").click()
    expect(panel.get_by_label("Stop at")).to_have_value("three")
    panel.get_by_role("button", name="Back to the defaults").click()
    save(panel)
    expect(page.get_by_role("button", name="Settings", exact=True)).to_be_visible()


def test_the_keyboard_alone_sets_everything(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    opener = page.locator("#open-settings")
    opener.focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("dialog", name="Settings")
    expect(panel).to_be_visible()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.name || document.activeElement.dataset.set || ''")
        reached.append(name)
        if name == "temperature":
            page.keyboard.type("0.3")
        if name == "as_default":
            page.keyboard.press("Space")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('#settings')"
        )
    params = ["temperature", "max_new_tokens", "min_new_tokens", "top_p", "top_k", "min_p", "repetition_penalty"]
    params += ["presence_penalty", "frequency_penalty", "seed", "stop"]
    assert {"system_prompt", *params, "as_default", "defaults", "close"} <= set(reached)
    panel.get_by_label("Seed").focus()
    page.keyboard.press("Enter")
    expect(panel).to_be_hidden()
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    expect(panel.get_by_label("Temperature")).to_have_value("0.3")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(opener).to_be_focused()


def test_a_wrong_value_is_told_at_its_field_and_nothing_is_lost(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    person.tolerated.append("status of 400")
    page = person.page
    panel = open_panel(page)
    panel.get_by_label("System prompt").fill("be kind")
    temperature, seed = panel.get_by_label("Temperature"), panel.get_by_label("Seed")
    temperature.fill("warm")
    seed.fill("-1")
    panel.get_by_role("button", name="Save").click()
    expect(page.locator("#error-temperature")).to_have_text("A number, please: 0 to 2.")
    expect(page.locator("#error-seed")).to_contain_text("A whole number, please: 0 to 9,223,372,036,854,775,807.")
    expect(panel.get_by_role("alert")).to_have_text("Not saved: the fields marked in red say why.")
    expect(temperature).to_be_focused()
    expect(temperature).to_have_attribute("aria-invalid", "true")
    expect(temperature).to_have_value("warm")
    expect(panel.get_by_label("System prompt")).to_have_value("be kind")
    temperature.fill("1,5")
    expect(page.locator("#error-temperature")).to_be_hidden()
    seed.fill("")
    save(panel)
    panel = open_panel(page)
    expect(temperature).to_have_value("1.5")


def test_what_can_not_be_saved_now_stays_in_the_panel(site: Site, sign_in: SignIn) -> None:
    person = sign_in(site)
    person.tolerated += ["ERR_INTERNET_DISCONNECTED", "WebSocket"]
    page = person.page
    panel = open_panel(page)
    panel.get_by_label("Top k").fill("7")
    person.context.set_offline(True)
    panel.get_by_role("button", name="Save").click()
    expect(panel.get_by_role("alert")).to_contain_text("Not saved: the site doesn't answer just now.")
    expect(panel.get_by_label("Top k")).to_have_value("7")
    person.context.set_offline(False)
    save(panel)


def test_what_was_written_is_there_again_if_the_panel_was_closed_by_mistake(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    panel = open_panel(page)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator("#toast")).to_be_empty()
    open_panel(page).get_by_label("System prompt").fill("a long text")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Reopen").click()
    expect(panel.get_by_label("System prompt")).to_have_value("a long text")
    save(panel)


def test_the_panel_fills_a_phone(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site, viewport=PHONE, is_mobile=True, has_touch=True).page
    panel = open_panel(page)
    box = panel.bounding_box()
    assert box is not None and (box["x"], box["width"]) == (0, PHONE["width"])
    expect(panel.get_by_role("button", name="Save")).to_be_in_viewport(ratio=1)
    expect(panel.get_by_role("button", name="Close")).to_be_in_viewport(ratio=1)
    stop = panel.get_by_label("Stop at")
    stop.scroll_into_view_if_needed()
    expect(stop).to_be_in_viewport(ratio=1)
    expect_no_sideways_scrolling(page)
    assert panel.evaluate("panel => panel.querySelector('.body').scrollWidth <= panel.clientWidth")


def test_a_conversation_keeps_its_model(slow_site: Site, sign_in: SignIn) -> None:
    person = sign_in(slow_site)
    page = person.page
    chooser = page.get_by_label("Model", exact=True).first
    expect(page.locator("#chooser")).to_contain_text("mock")
    expect(chooser.locator("option")).to_have_text([re.compile("^mock – "), re.compile("^slow – ")])
    chooser.select_option("slow")
    converse(page, "one two three")
    assert last_job(slow_site, page)[0] == "slow"
    page.reload()
    expect(chooser).to_have_value("slow")
    reply(page).get_by_role("button", name="Try again").click()
    expect_state(page, "finished")
    assert last_job(slow_site, page)[0] == "slow"
    second = person.tab(page.url)
    expect(second.locator("#model")).to_have_value("slow")
    chooser.select_option("mock")
    expect(second.locator("#model")).to_have_value("mock")
    second.close()
    converse(page, "one two three")
    assert last_job(slow_site, page)[0] == "mock"
    other = person.tab(slow_site.url)
    expect(other.locator("#chooser")).to_contain_text("mock")
    panel = open_panel(other)
    panel.get_by_label("Model", exact=True).select_option("slow")
    panel.get_by_label("Also my default").check()
    save(panel)
    other.goto(slow_site.url)
    expect(other.locator("#chooser")).to_contain_text("slow")


def test_the_chooser_tells_how_the_lines_are(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    line, model = page.locator("#chooser"), page.locator("#model")
    expect(line).to_contain_text("free")
    assert slow_site.manage("queue", "pause").returncode == 0
    try:
        say(page, "one two three")
        expect_state(page, "queued")
        model.focus()
        expect(line).to_contain_text("paused, 1 waiting")
        expect(model.locator("option")).to_have_text(["mock – paused, 1 waiting", "slow – paused, 1 waiting"])
        page.get_by_role("button", name="Stop").click()
        expect_state(page, "cancelled")
    finally:
        assert slow_site.manage("queue", "resume").returncode == 0
    expect(line).to_contain_text("free")


def test_one_model_is_no_choice(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    panel = open_panel(page)
    expect(page.locator("#chooser")).to_be_hidden()
    expect(panel.get_by_label("Model", exact=True)).to_be_hidden()
