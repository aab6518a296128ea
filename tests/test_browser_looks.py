"""How the page fits: small and large screens, light and dark."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser import Person, expect_begun, expect_state, numbered, say
from tests.site import Site

SignIn = Callable[..., Person]
PHONE = {"width": 390, "height": 844}


def expect_no_sideways_scrolling(page: Page) -> None:
    wide = page.evaluate(
        """[document.documentElement, ...document.querySelectorAll("body, #main, #scroller, #sidebar, #bottom")]
        .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.id || box.tagName)"""
    )
    assert wide == []


def test_it_fits_a_phone_in_every_phase(slow_site: Site, sign_in: SignIn) -> None:
    page = sign_in(slow_site, viewport=PHONE, is_mobile=True, has_touch=True).page
    expect(page.locator("#empty")).to_be_visible()
    expect_no_sideways_scrolling(page)
    long = "https://example.org/" + "a" * 200
    say(page, f"{numbered()} {long} `{'code' * 60}`")
    expect_begun(page)
    expect_no_sideways_scrolling(page)
    expect_state(page, "finished")
    expect_no_sideways_scrolling(page)
    page.get_by_role("button", name="Conversations").click()
    link = page.locator("nav#conversations a").first
    expect(link).to_be_in_viewport()
    expect_no_sideways_scrolling(page)
    page.keyboard.press("Escape")
    expect(link).not_to_be_in_viewport()


@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_light_or_dark_as_the_system_is(site: Site, sign_in: SignIn, width: int) -> None:
    page = sign_in(site, viewport={"width": width, "height": 800}).page
    lightness = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        lightness[scheme] = [brightness(page, element, "backgroundColor") for element in ("html", "#composer")]
        assert abs(lightness[scheme][0] - brightness(page, "#prompt", "color")) > 128
    assert min(lightness["light"]) > 200 and max(lightness["dark"]) < 90


def brightness(page: Page, element: str, name: str) -> float:
    """0 to 255 of a computed colour, whatever notation it is in."""
    return float(
        page.locator(element).evaluate(
            """(box, name) => {
              const canvas = new OffscreenCanvas(1, 1).getContext("2d");
              canvas.fillStyle = getComputedStyle(box)[name];
              canvas.fillRect(0, 0, 1, 1);
              const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data;
              return (red + green + blue) / 3;
            }""",
            name,
        )
    )


def test_it_begins_with_an_example(site: Site, sign_in: SignIn) -> None:
    page = sign_in(site).page
    example = page.locator("button.example").first
    text = example.locator("span").inner_text()
    example.click()
    expect(page.locator("article.prompt")).to_have_text(text)
    expect(page.locator("#empty")).to_have_count(0)
    expect_state(page, "finished")
