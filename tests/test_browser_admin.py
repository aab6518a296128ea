"""The operator's way through a running site, in a browser, beside somebody who chats."""

import json
import re
import urllib.request
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser import PATIENCE, Person, expect_begun, expect_state, numbered, reply, say, text_of
from tests.site import Site

SignIn = Callable[..., Person]


def operate(site: Site, sign_in: SignIn) -> Page:
    """The admin, signed in to with the password that `up` printed."""
    up = site.up
    options: dict[str, object] = {}
    if up["flower_url"]:
        origin = up["flower_url"].rstrip("/")
        options["http_credentials"] = {
            "username": up["flower_user"],
            "password": up["flower_password"],
            "origin": origin,
        }
    person = sign_in(site, **options)
    if up["flower_url"]:
        person.tolerated.append(re.escape(up["flower_url"]))  # its pages are not ours
    person.context.clear_cookies()
    page = person.page
    page.goto(up["admin_url"])
    page.get_by_label("Username").fill(up["admin_user"])
    page.get_by_label("Password").fill(up["admin_password"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="Jobs")).to_be_visible()
    return page


def list_jobs_of(page: Page, site: Site, person: Person) -> None:
    page.goto(f"{site.url}/admin/generation/job/?q={person.name}")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)


def test_it_lists_a_job_and_leads_to_its_task_in_flower(site: Site, sign_in: SignIn) -> None:
    operator, person = operate(site, sign_in), sign_in(site)
    say(person.page, numbered(3))
    expect_state(person.page, "finished")
    list_jobs_of(operator, site, person)
    row = operator.locator("#result_list tbody tr")
    expect(row.locator(".field-state")).to_have_text("finished")
    expect(row.locator(".field-user")).to_have_text(person.name)
    expect(row.locator(".field-model")).to_have_text("mock")
    expect(row.locator(".field-prompt")).to_have_text(numbered(3))
    expect(row.locator(".field-tokens")).to_have_text("3 + 64")
    expect(row.locator(".field-speed")).to_have_text(re.compile(r"^\d+\.\d$"))
    row.locator("th a").click()
    expect(operator.locator(".field-reply")).to_contain_text("w1 w2 w3 w1")
    job = reply(person.page).get_attribute("data-job") or ""
    operator.locator(".field-task a").click()
    expect(operator).to_have_url(re.compile(rf"^{re.escape(site.up['flower_url'])}task/"))
    expect(operator.locator("body")).to_contain_text("generation.generate")
    # The result of the task is the job that it ran; Flower hears of it by an event.
    shown = operator.locator("body").get_by_text(job)
    for _ in range(20):
        if shown.count():
            break
        operator.reload()
    expect(shown.first).to_be_visible()


def test_it_cancels_a_running_job(slow_site: Site, sign_in: SignIn) -> None:
    """Its text stays, and who wrote the prompt sees that it was stopped."""
    operator, person = operate(slow_site, sign_in), sign_in(slow_site)
    person.page.locator("#model").select_option("slow")
    say(person.page, numbered())
    expect_begun(person.page, "w2")
    list_jobs_of(operator, slow_site, person)
    operator.locator("#result_list tbody input.action-select").check()
    operator.locator("select[name=action]").select_option("cancel")
    operator.get_by_role("button", name="Run").or_(operator.get_by_role("button", name="Go")).click()
    expect(operator.locator(".messagelist")).to_have_text("Jobs: 1 asked to stop.")
    expect_state(person.page, "cancelled")
    kept = text_of(person.page).inner_text()
    assert kept and numbered().startswith(kept) and kept != numbered()
    list_jobs_of(operator, slow_site, person)
    expect(operator.locator(".field-state")).to_have_text("cancelled")


def test_it_shows_queues_and_workers_and_adds_none(site: Site, sign_in: SignIn) -> None:
    operator = operate(site, sign_in)
    for name, words in (("queue", "open"), ("worker", "mock: ready")):
        operator.goto(f"{site.url}/admin/generation/{name}/")
        expect(operator.locator("#result_list")).to_contain_text(words)
        expect(operator.locator("#content .addlink")).to_have_count(0)


def run_action(page: Page, address: str, action: str) -> None:
    """On all rows of that list; none of them is changed by opening it."""
    page.goto(address)
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").select_option(action)
    page.get_by_role("button", name="Run").or_(page.get_by_role("button", name="Go")).click()


def test_it_pauses_a_queue_and_tells_who_waits(slow_site: Site, sign_in: SignIn) -> None:
    operator, running, waiting = operate(slow_site, sign_in), sign_in(slow_site), sign_in(slow_site)
    queues = f"{slow_site.url}/admin/generation/queue/"
    say(running.page, numbered(12))
    expect_begun(running.page, "w3")
    run_action(operator, queues, "pause")
    try:
        expect(operator.locator(".messagelist")).to_have_text("Queues: 1 paused.")
        expect(operator.locator(".field-status")).to_have_text("paused")
        say(waiting.page, numbered(2))
        expect(reply(waiting.page).locator(".status")).to_contain_text("paused")
        expect_state(running.page, "finished")
        expect(reply(waiting.page)).to_have_attribute("data-state", "queued")
    finally:
        run_action(operator, queues, "resume")
    expect(operator.locator(".messagelist")).to_have_text("Queues: 1 resumed.")
    expect_state(waiting.page, "finished")


def test_it_keeps_each_job_on_one_line(slow_site: Site, sign_in: SignIn) -> None:
    """A long prompt made a tower of its row, as high as the window."""
    operator, person = operate(slow_site, sign_in), sign_in(slow_site)
    say(person.page, "a prompt of many words that fits no column of any list " * 20)
    expect(reply(person.page)).to_have_attribute("data-job", re.compile(".+"))
    list_jobs_of(operator, slow_site, person)
    heights = operator.locator("#result_list tbody tr > *").evaluate_all("all => all.map((each) => each.offsetHeight)")
    assert max(heights) < 50
    expect_state(person.page, "finished")


def test_it_counts_what_runs(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site).page
    say(page, numbered())
    expect_begun(page, "w2")
    load = json.loads(read(slow_site, "/health/load"))
    assert load["queues"]["gpu"]["running"] >= 1
    expect_state(page, "finished")
    assert json.loads(read(slow_site, "/health/ready"))
    assert "# TYPE" in read(slow_site, "/metrics")


def read(site: Site, path: str) -> str:
    with urllib.request.urlopen(site.url + path, timeout=PATIENCE) as response:
        return str(response.read().decode())
