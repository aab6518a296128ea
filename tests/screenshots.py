"""Pictures of the running page, for the README and for looking at: `python -m tests.screenshots [FOLDER]`.

Each phase on a wide screen and on a phone, light and dark. Starts two sites of its own: one with `mock:`, whose
speed can be chosen, and one with the built-in model. Not a test.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests import environment

# As for the tests: with the settings loaded, nothing of the caller's environment reaches the sites.
environment.prepare()
django.setup()

from tests.browser import ARGUMENTS, PATIENCE, Person, expect_state, program, reply, say, text_of  # noqa: E402
from tests.site import Site  # noqa: E402
from tests.site import running as running_site  # noqa: E402

SIZES: dict[str, ViewportSize] = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")
NAME = "Ada"

QUESTION = "How do I keep a running mean and variance of a stream, without storing it?"
ANSWER = """Use **Welford's method**: it keeps three numbers and stays accurate where the sum of squares doesn't.

For each new value $x_n$:

$$\\bar{x}_n = \\bar{x}_{n-1} + \\frac{x_n - \\bar{x}_{n-1}}{n}$$

```python
class RunningVariance:
    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self.squares += step * (value - self.mean)  # not step * step
```

| method | passes | memory | accuracy |
|--------|:------:|-------:|----------|
| two passes | 2 | all values | good |
| sum of squares | 1 | 3 numbers | poor when the mean is large |
| Welford | 1 | 3 numbers | good |

Things to mind:

1. Divide by `count - 1` for a sample's variance.
2. Merge two streams by their counts and means.
   - The order of merging doesn't matter.
"""
STREAMED = (
    "A rainbow is sunlight that was **bent, mirrored and bent again** inside raindrops. Each colour bends by an angle"
    " of its own, so that `red` reaches your eye from 42° and `violet` from 40° above the shadow of your head."
)
OTHERS = ["Plan a weekend in Lisbon", "Explain a race condition", "A polite reminder about an invoice"]

STORE = """
import json
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from chatsite.chat.models import Conversation, Message, ReplyJob
from generation.models import Job, Queue

name, others, question, answer = json.loads({arguments!r})
user, queue, now = User.objects.get(username=name), Queue.objects.get_or_create(name="gpu")[0], timezone.now()
for number, title in enumerate(others):
    old = Conversation.objects.create(user=user, title=title)
    Conversation.objects.filter(pk=old.pk).update(updated_at=now - timedelta(days=number))

def store(title, **fields):
    conversation = Conversation.objects.create(user=user, title=title)
    asked = Message.objects.create(conversation=conversation, role="user", text=title)
    said = Message.objects.create(conversation=conversation, role="assistant", parent=asked)
    job = Job.objects.create(
        user=user, queue=queue, model="mock", messages=[dict(role="user", content=title)],
        arrival=0, order_key=0, created_at=now, queued_at=now, ended_at=now, **fields,
    )
    ReplyJob.objects.create(message=said, job=job)
    print(conversation.get_absolute_url())

store(question, state="finished", text=answer, finish_reason="stop", completion_tokens=298,
      timings=dict(first_token=0.4, total=12.6))
store("Summarise this report", state="failed", error_code="prompt_too_long",
      error_message="The prompt has 5,120 tokens; this model takes 4,096.")
"""


class Photographer:
    def __init__(self, folder: Path, browser: Browser) -> None:
        self.folder, self.browser = folder, browser

    def take(self, page: Page, phase: str) -> None:
        """One picture per size and scheme. Works in the middle of a reply too."""
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                page.screenshot(path=self.folder / f"{phase}-{size}-{scheme}.png")
        page.set_viewport_size(SIZES["wide"])

    def person(self, site: Site, name: str) -> Person:
        return Person(self.browser, site, name=name, viewport=SIZES["wide"])


def take_mock_phases(site: Site, photographer: Photographer) -> None:
    ada = photographer.person(site, NAME)
    page = ada.page
    code = STORE.format(arguments=json.dumps([NAME, OTHERS, QUESTION, ANSWER]))
    finished, failed = site.manage("shell", "--no-imports", "-c", code).stdout.split()[-2:]
    for phase, path in (("empty", "/"), ("finished", finished), ("error", failed)):
        page.goto(site.url + path)
        page.wait_for_load_state("networkidle")
        photographer.take(page, phase)
    take_panels_and_search(page, site, photographer)
    page.goto(site.url)
    say(page, STREAMED)
    expect(text_of(page)).to_contain_text("mirrored", timeout=PATIENCE)
    photographer.take(page, "streaming")
    other = photographer.person(site, "Grace").page
    say(other, "And what about snow?")
    expect(reply(other).locator(".status")).to_contain_text("next in line")
    photographer.take(other, "waiting")
    other.set_viewport_size(SIZES["phone"])
    for scheme in SCHEMES:
        other.emulate_media(color_scheme=scheme)
        other.get_by_role("button", name="Conversations").click()
        expect(other.locator("nav#conversations a").first).to_be_in_viewport(ratio=1)
        other.screenshot(path=photographer.folder / f"drawer-phone-{scheme}.png")
        other.keyboard.press("Escape")
    page.locator("#stop").click()
    other.locator("#stop").click()
    expect_state(page, "cancelled")
    take_branches(page, photographer)
    page.goto(f"{site.url}/c/00000000-0000-4000-8000-000000000000/")
    photographer.take(page, "missing")
    ada.context.clear_cookies()
    page.goto(site.url)
    photographer.take(page, "login")


def take_panels_and_search(page: Page, site: Site, photographer: Photographer) -> None:
    page.keyboard.press("Control+/")
    photographer.take(page, "keys")
    page.keyboard.press("Escape")
    page.locator("#open-settings").click()
    expect(page.locator("#settings")).to_be_visible()
    photographer.take(page, "settings")
    page.keyboard.press("Escape")
    page.goto(f"{site.url}/search/?q=mean")
    photographer.take(page, "search")


def take_branches(page: Page, photographer: Photographer) -> None:
    """Two versions of a prompt, the newer one's reply cut short, and the older prompt's editor open."""
    page.locator("article.prompt").first.hover()
    page.get_by_role("button", name="Edit").first.click()
    page.locator("form.edit textarea").fill("What makes a rainbow?")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("article.prompt .place")).to_have_text("2/2")
    expect(text_of(page)).to_contain_text("rainbow", timeout=PATIENCE)
    page.locator("#stop").click()
    expect_state(page, "cancelled")
    photographer.take(page, "branches")


def take_real_replies(site: Site, photographer: Photographer) -> None:
    """A finished reply, then one that grows while the next prompt waits: the README's picture."""
    page = photographer.person(site, NAME).page
    code = STORE.format(arguments=json.dumps([NAME, OTHERS, QUESTION, ANSWER]))
    site.manage("shell", "--no-imports", "-c", code)
    page.reload()
    say(page, "Write a Python function that finds the longest word in a text, with an example.")
    expect_state(page, "finished")
    photographer.take(page, "real")
    say(page, "Tell me a long story about the keeper of a lighthouse.")
    growing = page.locator("article.reply").nth(1)
    expect(growing).to_have_attribute("data-state", "running")
    say(page, "And now a poem about it.")
    expect(growing.locator(".blocks")).to_have_text(re.compile(r"(\S+\s+){45}"), timeout=PATIENCE)
    expect(reply(page).locator(".status")).to_contain_text("next in line")
    photographer.take(page, "line")


@contextmanager
def running(*options: str, **environ: str) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="tokenline-pictures-") as folder:
        site = Site(Path(folder), "--no-flower", *options, **environ)
        with running_site(site):
            yield site


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
        photographer = Photographer(folder, browser)
        with running("--concurrency", "1", GENERATION_MODELS="mock=mock:?rate=3") as site:
            take_mock_phases(site, photographer)
        with running("--concurrency", "1", GENERATION_MODELS="") as site:
            take_real_replies(site, photographer)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: python -m tests.screenshots [FOLDER]")
    main(Path(sys.argv[1] if len(sys.argv) == 2 else "screenshots"))
