"""The site as an app: what Chromium says of its manifest, and that its icons are there."""

import json
import struct
import urllib.request
import uuid
from pathlib import Path
from urllib.parse import urljoin

from playwright.sync_api import Browser

from tests.browser import ARGUMENTS, program, sign_in_link
from tests.site import Site


def fetch(address: str) -> tuple[bytes, str]:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address) as response:
        return response.read(), response.headers["Content-Type"]


def test_chromium_finds_it_installable(site: Site, browser: Browser, tmp_path: Path) -> None:
    """Asked in a profile of its own: what is private can't be installed."""
    context = browser.browser_type.launch_persistent_context(tmp_path, executable_path=program(), args=ARGUMENTS)
    try:
        page = context.new_page()
        page.goto(sign_in_link(site, f"p-{uuid.uuid4().hex[:12]}"))
        session = context.new_cdp_session(page)
        manifest = session.send("Page.getAppManifest")
        assert (manifest["url"], manifest["errors"]) == (f"{site.url}/manifest.webmanifest", [])
        assert session.send("Page.getInstallabilityErrors")["installabilityErrors"] == []
    finally:
        context.close()


def test_its_icons_have_the_size_that_the_manifest_says(site: Site) -> None:
    content, kind = fetch(f"{site.url}/manifest.webmanifest")
    assert kind == "application/manifest+json"
    icons = json.loads(content)["icons"]
    assert {"any", "maskable"} == {icon["purpose"] for icon in icons}
    for icon in icons:
        image, kind = fetch(urljoin(site.url, icon["src"]))
        assert kind == icon["type"]
        if kind == "image/png":
            assert icon["sizes"] == "{}x{}".format(*struct.unpack(">II", image[16:24]))
