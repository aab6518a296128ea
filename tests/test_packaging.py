"""The wheel holds what it needs, and thirty lines of another site's code stream a reply with it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORDS = "one two three four five six seven eight nine ten"

SETTINGS = """
import os
INSTALLED_APPS += ["generation"]
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
REDIS_URL = CELERY_BROKER_URL = os.environ["REDIS_URL"]
LAYER = "channels_redis.pubsub.RedisPubSubChannelLayer"
CHANNEL_LAYERS = {"default": {"BACKEND": LAYER, "CONFIG": {"hosts": [REDIS_URL]}}}
"""

CELERY = """
from celery import Celery
app = Celery("host")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""

URLS = """
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.http import StreamingHttpResponse
from django.urls import path
from generation import queue
from generation.delivery import follow

async def answer(request):
    user, _ = await get_user_model().objects.aget_or_create(username="guest")
    messages = [{"role": "user", "content": request.GET["text"]}]
    job = await sync_to_async(queue.submit)(user, messages, params={"max_new_tokens": 25})
    frames = follow(job)
    texts = (frame["text"] async for frame in frames if frame["type"] == "token")
    return StreamingHttpResponse(texts, content_type="text/plain")

urlpatterns = [path("answer", answer)]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder is left in the tree nor stale files of one get in."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("chatsite", "generation"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", target, wheel, cwd=target)
    return target


@pytest.fixture
def host(installed: Path, tmp_path: Path, settings: Any) -> "HostSite":
    """An empty project beside the installed wheel; the source tree is not on its path."""
    site = HostSite(tmp_path, installed, urlsplit(settings.REDIS_URL)._replace(path="/9").geturl())
    run(sys.executable, "-m", "django", "startproject", "host", tmp_path, cwd=tmp_path, env=site.env)
    with (tmp_path / "host" / "settings.py").open("a") as file:
        file.write(SETTINGS)
    (tmp_path / "host" / "celery.py").write_text(CELERY)
    (tmp_path / "host" / "urls.py").write_text(URLS)
    (tmp_path / "host" / "__init__.py").write_text("from host.celery import app\n")
    return site


class HostSite:
    def __init__(self, folder: Path, installed: Path, redis_url: str) -> None:
        self.folder = folder
        ours = ("DJANGO_", "GENERATION_", "CHATSITE_", "CELERY_", "DATABASE_URL")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | {
            "DJANGO_SETTINGS_MODULE": "host.settings",
            "PYTHONPATH": f"{folder}{os.pathsep}{installed}",
            "REDIS_URL": redis_url,
        }

    def manage(self, *args: str) -> str:
        return run(sys.executable, "manage.py", *args, cwd=self.folder, env=self.env)

    @contextlib.contextmanager
    def process(self, name: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process of the site, ended with SIGTERM; its log is shown when the test fails."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", *args], cwd=self.folder, env=self.env, stdout=file, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            print(f"--- {name}\n{log.read_text(errors='replace')}")


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(each) for each in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether the port accepts connections before a minute is over and while the process lives."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            return True
        time.sleep(0.05)
    return False


def test_it_packs_migrations_scripts_templates_and_static_files(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("generation", "chatsite")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".pyo")
    }
    assert wanted - packed == set()
    for part in ("generation/migrations/", "generation/delivery/", "chatsite/chat/templates/", "chatsite/chat/static/"):
        assert any(name.startswith(part) and not name.endswith("__init__.py") for name in packed), part
    assert any(name.endswith(".lua") for name in packed)
    assert not any(name.startswith("tests/") for name in packed)


def test_it_streams_a_reply_with_thirty_lines_of_a_hosts_code(host: HostSite, installed: Path) -> None:
    lines = [line for part in (SETTINGS, CELERY, URLS) for line in part.splitlines() if line.strip()]
    assert len(lines) + 1 <= 30  # and the one in __init__.py
    where = run(sys.executable, "-c", "import generation; print(generation.__file__)", cwd=host.folder, env=host.env)
    assert where.startswith(str(installed))

    host.manage("check")
    host.manage("migrate", "--verbosity", "0")
    port = free_port()
    address = f"http://127.0.0.1:{port}/answer?text={WORDS.replace(' ', '+')}"
    worker = host.process("worker", "celery", "-A", "host", "worker", "-Q", "gpu", "-P", "threads", "-c", "2")
    web = host.process("web", "daphne", "-b", "127.0.0.1", "-p", str(port), "host.asgi:application")
    with worker, web as process:
        assert listening(port, process)
        pieces = []
        with urllib.request.urlopen(address, timeout=60) as response:
            while piece := response.read1():
                pieces.append(piece)
    words = WORDS.split()  # which `mock:` repeats
    assert b"".join(pieces).decode() == " ".join(words[i % len(words)] for i in range(25))
    assert len(pieces) > 10  # in pieces, as it was made, and not in one
