"""docker-compose.yml: each service's command, started as a process with that service's environment.

Images aren't built here. Hosts and ports are replaced by free ones of this machine; the rest is as written.
"""

import contextlib
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chatsite.local import ports, redis_server
from tests import postgresql
from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Lines, clean_environment

SECRETS = {
    "SECRET_KEY": "k" * 50,
    "POSTGRES_PASSWORD": "p" * 32,
    "REDIS_PASSWORD": "r" * 32,
    "FLOWER_BASIC_AUTH": "operator:" + "f" * 32,
    "GENERATION_MODELS": "mock=mock:?rate=50",
}


def interpolated(value: Any, values: dict[str, str]) -> Any:
    """Compose's `${NAME:-default}` and `${NAME:?message}`, in every string."""
    if isinstance(value, dict):
        return {key: interpolated(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, values) for item in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if found := values.get(name):
            return found
        if operator == ":?":
            raise KeyError(f"{name}: {rest}")
        return rest or ""

    return re.sub(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}", replacement, value)


def services(values: dict[str, str]) -> dict[str, Any]:
    parsed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = interpolated(parsed["services"], values)
    return found


class Composition:
    """The services as processes."""

    def __init__(self, folder: Path, postgresql_port: int) -> None:
        self.web_port, self.redis_port, self.flower_port = (ports.any_free() for _ in range(3))
        self.folder = folder
        self._services = services(SECRETS)
        self._places = {
            "@db:5432": f"@{ports.LOOPBACK}:{postgresql_port}",
            "@redis:6379": f"@{ports.LOOPBACK}:{self.redis_port}",
            "0.0.0.0": ports.LOOPBACK,
            "8000": str(self.web_port),
            "5555": str(self.flower_port),
        }
        self.running: dict[str, subprocess.Popen[str]] = {}

    def _here(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text

    def environment(self, service: str) -> dict[str, str]:
        given = {name: self._here(str(value)) for name, value in self._services[service]["environment"].items()}
        return clean_environment(CHATSITE_VAR=str(self.folder / "var"), **given)

    def command(self, service: str) -> list[str]:
        program, *arguments = (self._here(part) for part in self._services[service]["command"])
        if program == "python":
            return [sys.executable, *arguments]
        if program == "redis-server":
            # In a container it has the network and the folder for itself.
            place = ["--port", str(self.redis_port), "--bind", ports.LOOPBACK, "--dir", str(self.folder)]
            return [redis_server.find_program(), *arguments, *place]
        return [sys.executable, "-m", program, *arguments]

    def start(self, service: str) -> Lines:
        process = subprocess.Popen(
            self.command(service),
            cwd=ROOT,
            env=self.environment(service),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running[service] = process
        return Lines(process)

    def run(self, service: str, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command or self.command(service),
            cwd=ROOT,
            env=self.environment(service),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def stop(self, service: str) -> int:
        process = self.running.pop(service)
        process.terminate()
        return process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def composition(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    database = services(SECRETS)["db"]["environment"]
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            postgresql.cluster(database["POSTGRES_USER"], database["POSTGRES_PASSWORD"], database["POSTGRES_DB"])
        )
        composition = Composition(tmp_path_factory.mktemp("compose"), cluster.port)
        for service in ("redis", "worker", "web", "flower"):
            stack.callback(lambda name=service: name in composition.running and composition.stop(name))
        composition.start("redis").wait_for("Ready to accept connections")
        migrated = composition.run("migrate")
        assert migrated.returncode == 0, migrated.stderr
        collected = composition.run("web", sys.executable, "manage.py", "collectstatic", "--noinput")
        assert collected.returncode == 0, collected.stderr
        worker, web, flower = (composition.start(name) for name in ("worker", "web", "flower"))
        worker.wait_for("ready.")
        web.wait_for("Listening on TCP")
        flower.wait_for("Connected to redis")
        yield composition


def status(url: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PATIENCE_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_it_answers_a_prompt(composition: Composition) -> None:
    chat = [sys.executable, "manage.py", "chat", "one two", "--max-new-tokens", "3"]
    answer = composition.run("web", *chat)
    assert answer.stdout == "one two one\n", answer.stderr


def test_it_is_ready_and_shows_pages(composition: Composition) -> None:
    site = f"http://{ports.LOOPBACK}:{composition.web_port}"
    assert status(f"{site}/health/ready") == 200
    assert status(f"{site}/accounts/login/") == 200


def test_it_keeps_flower_behind_a_password(composition: Composition) -> None:
    assert status(f"http://{ports.LOOPBACK}:{composition.flower_port}/") == 401


def test_it_stops_a_worker_on_sigterm(composition: Composition) -> None:
    assert composition.stop("worker") == 0
    composition.start("worker").wait_for("ready.")


@pytest.mark.parametrize("name", ["SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD", "FLOWER_BASIC_AUTH"])
def test_it_has_no_default_for_a_secret(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        services({**SECRETS, name: ""})


def test_it_publishes_nothing_beyond_this_machine() -> None:
    for name, service in services(SECRETS).items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), (name, port)
