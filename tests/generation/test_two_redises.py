"""A real worker that shares the site's database but not its Redis."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Lines, clean_environment

ASK_UNTIL_RED_FOR_THIS = f"""
import django, json, time
django.setup()
from django.test import Client
deadline = time.monotonic() + {PATIENCE_SECONDS}
while True:
    answer = Client().get("/health/ready")
    if "another Redis" in answer.content.decode() or time.monotonic() > deadline:
        break
    time.sleep(0.1)
print(json.dumps([answer.status_code, answer.json()["reasons"]]))
"""


def test_it_turns_red_and_names_a_worker_that_uses_another_redis(tmp_path: Path, settings: Any) -> None:
    """Prompts would run there, and nobody here would ever see a word of the replies."""
    other = urlsplit(settings.REDIS_URL)._replace(path="/8").geturl()
    web = clean_environment(
        DJANGO_SETTINGS_MODULE="chatsite.settings",
        CHATSITE_VAR=str(tmp_path),
        DATABASE_URL=f"sqlite:///{tmp_path / 'db.sqlite3'}",
        SECRET_KEY="for-this-test-only",
        ALLOWED_HOSTS="testserver",
        REDIS_URL=settings.REDIS_URL,
        GENERATION_MODELS="mock=mock:",
    )
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=web, check=True)
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "chatsite", "worker", "-Q", "gpu", "-P", "threads", "-c", "1"]
        + ["-n", "celery@elsewhere"],
        cwd=ROOT,
        env=web | {"REDIS_URL": other},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = Lines(worker)
    try:
        asked = subprocess.run(
            [sys.executable, "-c", ASK_UNTIL_RED_FOR_THIS], cwd=ROOT, env=web, capture_output=True, text=True
        )
        assert asked.returncode == 0, asked.stderr
        status, reasons = json.loads(asked.stdout.splitlines()[-1])
    finally:
        worker.terminate()
        worker.wait(PATIENCE_SECONDS)
        print(log.wait_for_end())
    assert status == 503
    assert any(
        reason.startswith("worker celery@elsewhere") and reason.endswith("uses another Redis than this web process")
        for reason in reasons
    )
