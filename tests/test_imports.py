"""Who may import whom: the app knows nothing of the site, the engine nothing of Django, the web nothing of torch."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SITE = os.environ | {"DJANGO_SETTINGS_MODULE": "chatsite.settings"}


def imports_of(path: Path) -> Iterator[str]:
    """The full names that a file imports, wherever in it."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            yield ".".join(part for part in (base, node.module) if part)


def modules_after(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter holds after a statement."""
    program = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=SITE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("folder", "foreign"),
    [
        ("generation", {"chatsite"}),
        ("generation/engine", {"chatsite", "django", "celery", "channels", "redis", "kombu"}),
    ],
)
def test_it_imports_nothing_from_further_out(folder: str, foreign: set[str]) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in imports_of(path)
        if name.partition(".")[0] in foreign
    }
    assert found == set()


def test_it_keeps_the_engine_within_its_own_package() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "generation" / "engine").rglob("*.py")
        for name in imports_of(path)
        if name.startswith("generation") and not name.startswith("generation.engine")
    }
    assert found == set()


def test_it_imports_the_engine_without_django_celery_or_torch() -> None:
    loaded = modules_after("import generation.engine")
    assert loaded & {"django", "celery", "torch", "transformers", "tokenizers", "numpy"} == set()


def test_it_serves_the_site_without_torch() -> None:
    """Importing a tokenizer alone loads torch, half a second and 200 MB in every web process; and a GPU that was
    touched before a fork can't be used after it (celery/celery#3402, Koed00/django-q#713).
    """
    loaded = modules_after("import chatsite.asgi")
    assert "django" in loaded
    assert loaded & {"torch", "transformers", "tokenizers"} == set()


def test_it_sends_a_job_without_torch() -> None:
    loaded = modules_after(
        "import django, os\n"
        "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'chatsite.settings')\n"
        "django.setup()\n"
        "import generation.tasks, generation.consumers, generation.delivery"
    )
    assert loaded & {"torch", "transformers", "tokenizers"} == set()
