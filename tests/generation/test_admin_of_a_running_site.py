"""The operator's way through a running site: sign in, find the job, follow its link to Flower."""

import base64
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from html import unescape
from http.cookiejar import CookieJar
from urllib.parse import urlencode

import pytest

from tests.site import PATIENCE_SECONDS, Site


class Operator:
    """A person with the passwords that `up` printed, and a browser without scripts."""

    def __init__(self, site: Site) -> None:
        self.up = site.up
        self.site = site.url
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar())).open
        form = self.get("/admin/login/")
        token = re.search('name="csrfmiddlewaretoken" value="(.*?)"', form)
        assert token
        fields = {
            "username": self.up["admin_user"],
            "password": self.up["admin_password"],
            "csrfmiddlewaretoken": token[1],
            "next": "/admin/",
        }
        request = urllib.request.Request(f"{self.site}/admin/login/", urlencode(fields).encode())
        request.add_header("Referer", f"{self.site}/admin/login/")
        self._open(request).close()

    def get(self, path: str) -> str:
        with self._open(f"{self.site}{path}") as response:
            return str(response.read().decode())

    def flower(self, address: str) -> str:
        password = f"{self.up['flower_user']}:{self.up['flower_password']}"
        request = urllib.request.Request(address)
        request.add_header("Authorization", "Basic " + base64.b64encode(password.encode()).decode())
        with urllib.request.urlopen(request) as response:
            return str(response.read().decode())


def awaited(page: Callable[[], str], text: str) -> str:
    """The page once it holds the text; as it was at the end of our patience otherwise."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            html = page()
        except urllib.error.HTTPError as error:
            html = f"{error}"
        if text in html or time.monotonic() > deadline:
            return html
        time.sleep(0.1)


@pytest.fixture
def operator(site: Site) -> Operator:
    return Operator(site)


def test_it_leads_from_a_jobs_page_to_its_task_in_flower(site: Site, operator: Operator) -> None:
    done = site.manage("chat", "what the operator looks for")
    assert done.returncode == 0, done.stderr
    listed = operator.get("/admin/generation/job/")
    found = re.search(r'href="(/admin/generation/job/([0-9a-f-]{36})/change/)', listed)
    assert found, listed
    assert "what the operator looks for" in listed
    page = operator.get(found[1])
    link = re.search(r'href="(http://127\.0\.0\.1:\d+/task/[0-9a-f-]{36})"', page)
    assert link, page
    address = unescape(link[1])
    assert address.startswith(operator.up["flower_url"].rstrip("/"))
    # Flower learns of a task by events, a moment later; its result is the job that it ran.
    assert found[2] in awaited(lambda: operator.flower(address), found[2])
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(address)


def test_it_shows_the_worker_and_its_model(operator: Operator) -> None:
    html = operator.get("/admin/generation/worker/")
    assert "mock: ready" in html
    assert ">live<" in html
    assert ">gpu<" in operator.get("/admin/generation/queue/")


def test_it_serves_health_and_metrics_without_a_session(site: Site) -> None:
    for path in ("/health/live", "/health/ready", "/health/load", "/metrics"):
        with urllib.request.urlopen(site.url + path) as response:
            assert response.status == 200
