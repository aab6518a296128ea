"""A running `manage.py up`: what it tells, whom it lets in, and that it is alone in its folder."""

import base64
import http.cookiejar
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.environment import ROOT
from tests.site import Site, clean_environment, is_running

KEYS = {
    "chat_url",
    "admin_url",
    "admin_user",
    "admin_password",
    "flower_url",
    "flower_user",
    "flower_password",
    "redis_url",
    "database_url",
    "pids",
}


class Browser:
    """Keeps cookies and follows redirects, nothing more."""

    def __init__(self) -> None:
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies)
        )

    def get(self, url: str, fields: dict[str, str] | None = None, **headers: str) -> tuple[int, str, str]:
        """Status, final address and body; with `fields` it is a POST."""
        body = urllib.parse.urlencode(fields).encode() if fields is not None else None
        request = urllib.request.Request(url, body, headers)
        try:
            with self._opener.open(request) as response:
                return response.status, response.url, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.url, error.read().decode()

    def cookie(self, prefix: str) -> str:
        return next(str(cookie.value) for cookie in self.cookies if cookie.name.startswith(prefix))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_tells_where_everything_is(site: Site) -> None:
    up = site.up
    assert set(up) == KEYS
    assert up["chat_url"].startswith(f"{site.url}/accounts/link/?sesame=")
    assert up["admin_user"] == "admin"
    assert set(up["pids"]) == {"web", "worker", "redis", "flower"}
    assert all(is_running(pid) for pid in up["pids"].values())


def test_it_keeps_secrets_from_other_users_of_the_machine(site: Site) -> None:
    assert mode(site.var) == 0o700
    for name in ("up.json", "local.env", "secret_key", "admin_password", "redis_password", "flower_password"):
        assert mode(site.var / name) == 0o600, name
    for pid in site.up["pids"].values():
        command = Path(f"/proc/{pid}/cmdline").read_text()
        for secret in (site.up["admin_password"], site.up["flower_password"], site.up["redis_url"]):
            assert secret not in command


def test_it_is_ready_when_it_says_so(site: Site) -> None:
    status, _, body = Browser().get(f"{site.url}/health/ready")
    assert (status, body) == (200, '{"ready": true, "reasons": []}')


def test_it_signs_in_once_with_a_link(site: Site) -> None:
    link = site.manage("link", "--user", "ada").stdout.strip()
    browser = Browser()
    status, address, _ = browser.get(link)
    assert (status, address) == (200, f"{site.url}/")
    assert Browser().get(link)[0] == 403
    assert browser.get(f"{site.url}/")[:2] == (200, f"{site.url}/")


def test_it_gives_the_person_of_a_link_no_staff_rights(site: Site) -> None:
    browser = Browser()
    browser.get(site.manage("link", "--user", "grace").stdout.strip())
    _, address, _ = browser.get(f"{site.url}/admin/")
    assert "/admin/login/" in address


def test_it_refuses_a_name_that_cannot_be_one(site: Site) -> None:
    refused = site.manage("link", "--user", "not a name!")
    assert refused.returncode != 0
    assert "'not a name!' can't be a name" in refused.stderr


def test_it_lets_the_admin_in_with_the_printed_password_only(site: Site) -> None:
    def sign_in(password: str) -> str:
        browser = Browser()
        browser.get(site.up["admin_url"])
        fields = {
            "username": site.up["admin_user"],
            "password": password,
            "csrfmiddlewaretoken": browser.cookie("csrftoken"),
            "next": "/admin/",
        }
        return browser.get(f"{site.url}/admin/login/?next=/admin/", fields)[1]

    assert sign_in(site.up["admin_password"]) == site.up["admin_url"]
    assert "/login/" in sign_in("admin")


def test_it_keeps_flower_behind_a_password(site: Site) -> None:
    """Flower was open to everyone who could reach its port, tasks could be revoked by anybody.

    mher/flower#1217 (CVE-2022-30034)
    """
    url, browser = site.up["flower_url"], Browser()
    assert browser.get(url)[0] == 401
    assert browser.get(f"{url}api/task/revoke/1", {})[0] == 401
    pair = f"{site.up['flower_user']}:{site.up['flower_password']}".encode()
    assert browser.get(url, Authorization="Basic " + base64.b64encode(pair).decode())[0] == 200


def test_it_listens_on_the_loopback_address_only(site: Site) -> None:
    """Every listening socket of the site's processes, as the kernel lists them."""
    sockets: set[str] = set()
    for pid in site.up["pids"].values():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(descriptor) if descriptor.is_symlink() else ""
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                listening.append(fields[1].partition(":")[0])
    assert len(listening) >= 3
    assert set(listening) == {"0100007F"}


def test_it_refuses_a_second_start_on_the_same_folder(site: Site) -> None:
    second = site.manage("up", "--port", "0")
    assert second.returncode != 0
    assert site.url in second.stdout + second.stderr
    assert Browser().get(f"{site.url}/health/ready")[0] == 200


def test_it_refuses_a_port_that_is_taken(site: Site, tmp_path: Path) -> None:
    port = site.url.rpartition(":")[2]
    refused = subprocess.run(
        [sys.executable, "manage.py", "up", "--port", port, "--var", str(tmp_path / "var")],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert f"Port {port} is taken" in refused.stderr


@pytest.mark.parametrize(("option", "value"), [("--port", "70000"), ("--port", "many"), ("--concurrency", "0")])
def test_it_refuses_options_that_make_no_sense(tmp_path: Path, option: str, value: str) -> None:
    refused = subprocess.run(
        [sys.executable, "manage.py", "up", option, value, "--var", str(tmp_path / "var")],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2
    assert option in refused.stderr
    assert not (tmp_path / "var").exists()


def test_it_names_the_setting_that_is_wrong(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "manage.py", "up", "--port", "0", "--var", str(tmp_path / "var")],
        cwd=ROOT,
        env=clean_environment(GENERATION_MAX_QUEUE_SIZE="plenty"),
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert "GENERATION_MAX_QUEUE_SIZE" in refused.stderr
    assert "Traceback" not in refused.stderr
