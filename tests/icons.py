"""The app's PNG icons, drawn from icon.svg by Chromium: `python -m tests.icons`, when that changes. Not a test."""

import re

from playwright.sync_api import sync_playwright

from tests.browser import ARGUMENTS, program
from tests.environment import ROOT

FOLDER = ROOT / "chatsite" / "chat" / "static" / "chat"

ICONS = {
    "icon-192.png": (192, 1.0),
    "icon-512.png": (512, 1.0),
    "icon-mask.png": (512, 0.9),
    "icon-touch.png": (180, 0.9),
}
"""Size in pixels, and the drawing's part of it; what is left is ground, for systems that cut a shape of their own."""


def page_with(drawing: str, size: int, part: float) -> str:
    ground = re.search(r'fill="(#\w+)"', drawing)
    assert ground
    colour = "transparent" if part == 1 else ground.group(1)
    style = f"margin:0;background:{colour};display:grid;place-items:center;width:{size}px;height:{size}px"
    return f'<body style="{style}"><div style="width:{size * part}px;height:{size * part}px">{drawing}</div>'


def main() -> None:
    drawing = (FOLDER / "icon.svg").read_text()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
        for name, (size, part) in ICONS.items():
            page = browser.new_page(viewport={"width": size, "height": size})
            page.set_content(page_with(drawing, size, part))
            page.screenshot(path=FOLDER / name, omit_background=True)
        browser.close()


if __name__ == "__main__":
    main()
