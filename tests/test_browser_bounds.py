"""What the page does with a prompt that is refused by a quota."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser import Person, expect_state, say, text_of
from tests.chat.sockets import rows, set_quota
from tests.site import Site


def test_it_keeps_a_prompt_past_the_quota_until_it_may_be_sent(site: Site, sign_in: Callable[..., Person]) -> None:
    person = sign_in(site)
    page = person.page
    user = set_quota(site, person.name, 0)
    say(page, "not yet, please")
    reason = re.compile(r"^You have used 0 of the 0 tokens of this day; the quota resets at 00:00 UTC, in .* min\.$")
    expect(page.locator("#composer-error")).to_have_text(reason)
    expect(page.locator("#prompt")).to_have_value("not yet, please")
    expect(page.locator("article")).to_have_count(0)
    page.reload()
    expect(page.locator("#prompt")).to_have_value("not yet, please")
    rows(site, "DELETE FROM generation_quota WHERE user_id = ?", user)
    page.locator("#prompt").press("Enter")
    expect_state(page, "finished")
    expect(text_of(page)).to_contain_text("not yet, please")
    expect(page.locator("#prompt")).to_have_value("")
    expect(page.locator("#composer-error")).to_be_hidden()
    assert rows(site, "SELECT count(*) FROM generation_job WHERE user_id = ?", user) == [(1,)]
