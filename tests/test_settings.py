"""The settings are read from the environment alone, and a wrong value is refused with its name."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chatsite import environment
from tests.environment import ROOT
from tests.site import clean_environment

SHOW = """
import json
from django.conf import settings
print(json.dumps({name: getattr(settings, name) for name in (%s,)}, default=str))
"""


def load(folder: Path, *names: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Load the settings in a fresh interpreter and print some of them."""
    code = SHOW % ", ".join(map(repr, names or ("SECRET_KEY",)))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=clean_environment(
            DJANGO_SETTINGS_MODULE="chatsite.settings", CHATSITE_VAR=str(folder), **{"SECRET_KEY": "key"} | environ
        ),
        capture_output=True,
        text=True,
    )


def test_it_has_no_default_secret_key(tmp_path: Path) -> None:
    refused = load(tmp_path, SECRET_KEY="")
    assert refused.returncode != 0
    assert "SECRET_KEY is not set" in refused.stderr


def test_it_allows_no_host_unless_one_is_named(tmp_path: Path) -> None:
    assert json.loads(load(tmp_path, "ALLOWED_HOSTS", "DEBUG").stdout) == {"ALLOWED_HOSTS": [], "DEBUG": False}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEBUG", "perhaps"),
        ("DATABASE_URL", "somewhere"),
        ("CHATSITE_PORT", "-1"),
        ("GENERATION_MODELS", "just-a-name"),
        ("GENERATION_MAX_QUEUE_SIZE", "0"),
        ("GENERATION_MAX_NEW_TOKENS", "many"),
        ("GENERATION_MAX_WAIT_SECONDS", "nan"),
        ("GENERATION_LEASE_SECONDS", "inf"),
        ("GENERATION_RETENTION_DAYS", "-2"),
    ],
)
def test_it_names_the_variable_with_a_wrong_value(tmp_path: Path, name: str, value: str) -> None:
    refused = load(tmp_path, **{name: value})
    assert refused.returncode != 0
    assert f"{name}={value!r}" in refused.stderr


def test_it_takes_from_local_env_what_the_environment_does_not_set(tmp_path: Path) -> None:
    (tmp_path / "local.env").write_text("SECRET_KEY=kept\nREDIS_URL=redis://127.0.0.1:1/0\nALLOWED_HOSTS=a,b\n")
    names = ("SECRET_KEY", "REDIS_URL", "ALLOWED_HOSTS")
    found = json.loads(load(tmp_path, *names, ALLOWED_HOSTS="c").stdout)
    assert found == {"SECRET_KEY": "key", "REDIS_URL": "redis://127.0.0.1:1/0", "ALLOWED_HOSTS": ["c"]}


def test_it_opens_sqlite_so_that_readers_who_write_later_wait_for_each_other(tmp_path: Path) -> None:
    """ "database is locked" came at once despite a long timeout.

    simonw/django_sqlite_benchmark#6, learningequality/kolibri#13878
    """
    options = json.loads(load(tmp_path, "DATABASES").stdout)["DATABASES"]["default"]["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] >= 10
    assert "journal_mode=WAL" in options["init_command"]


def test_it_lets_no_host_that_was_cut_off_wait_or_lock_for_long(tmp_path: Path) -> None:
    url = "postgres://site@db.example/site?connect_timeout=2"
    options = json.loads(load(tmp_path, "DATABASES", DATABASE_URL=url).stdout)["DATABASES"]["default"]["OPTIONS"]
    silence = options["keepalives_idle"] + options["keepalives_count"] * options["keepalives_interval"]
    assert max(silence, options["tcp_user_timeout"] / 1000) <= 30
    assert "idle_in_transaction_session_timeout=10s" in options["options"]
    assert int(options["connect_timeout"]) == 2, "what the URL says has precedence"


def test_the_readme_names_every_variable_and_no_other() -> None:
    table = re.findall(r"(?m)^\| `([A-Z_]+)`", (ROOT / "README.md").read_text())
    assert sorted(table) == sorted(environment.names_read())
