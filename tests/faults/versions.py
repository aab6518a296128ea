"""The next version of this project, made from a copy of it: all that a newer one may change while this one runs.

Its workers and web processes take part in a site that this version has started.
"""

import copy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

from chatsite.local import ports
from tests.chat.sockets import Person
from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Lines, Site

# What is appended to a file of the copy, after which each version still does all that this one does.
ADDED = {
    "generation/models.py": """
Job.add_to_class("tone", models.CharField(max_length=10, db_default="plain"))
Worker.add_to_class("version", models.CharField(max_length=10, db_default="", blank=True))
""",
    "generation/delivery/writer.py": """
_message_before, _end_before = TokenWriter._message, TokenWriter.end


def _message(self, output, entry):
    self.hint(output.job_id, {"type": "job.speed", "job": str(output.job_id), "speed": 1.5})
    return {**_message_before(self, output, entry), "tone": "plain"}


def _end(self, output, marker):
    _end_before(self, output, {**marker, "tone": "plain", "usage": {**marker.get("usage", {}), "draft_tokens": 7}})


TokenWriter._message, TokenWriter.end = _message, _end
""",
    "generation/delivery/reader.py": """
_emit_before = JobReader._emit


async def _emit(self, frame):
    await _emit_before(self, {**frame, "tone": "plain"})


JobReader._emit = _emit
""",
    "generation/following.py": """
_group_message_before = FollowingConsumer.group_message


async def _group_message(self, message):
    return message["type"] == "job.speed" or await _group_message_before(self, message)


FollowingConsumer.group_message = _group_message
""",
    "generation/notices.py": """
_control_before = control


def control(worker_id, job_id):
    _publish(CONTROL.format(worker_id), b'{"hurry": true}')
    _control_before(worker_id, job_id)
""",
}
MIGRATION = """
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("generation", "{previous}")]
    operations = [
        migrations.AddField("job", "tone", models.CharField(max_length=10, db_default="plain")),
        migrations.AddField("worker", "version", models.CharField(max_length=10, db_default="", blank=True)),
    ]
"""
# (file, what this version writes, what the next one writes instead)
CHANGED = [
    ("generation/delivery/append.lua", "'t', ARGV[e + 2]", "'v', '2', 't', ARGV[e + 2]"),
    ("generation/delivery/declare.lua", "'origin', origin)", "'origin', origin, 'tone', 'plain')"),
    ("generation/notices.py", '{"sent_for": sent_for}', '{"sent_for": sent_for, "tone": "plain"}'),
    ("generation/tasks.py", 'sent_for: str = ""', 'sent_for: str = "", tone: str = ""'),
]


def write_next_version(tree: Path) -> Path:
    """Write it into a folder that is not there yet; that folder."""
    for name in ("generation", "chatsite"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "manage.py", tree)
    for name, source in ADDED.items():
        with (tree / name).open("a", encoding="utf-8") as file:
            file.write(source)
    for name, before, after in CHANGED:
        text = (tree / name).read_text(encoding="utf-8")
        assert before in text, f"{name} doesn't say {before}"
        (tree / name).write_text(text.replace(before, after), encoding="utf-8")
    migrations = tree / "generation" / "migrations"
    previous = max(path.stem for path in migrations.glob("[0-9]*.py"))
    (migrations / "9999_tone.py").write_text(MIGRATION.format(previous=previous), encoding="utf-8")
    return tree


class Version:
    """One version's code, whose processes join a running site."""

    def __init__(self, tree: Path, site: Site) -> None:
        self._tree = tree
        self._site = site
        self._env = site.env | {"PYTHONPATH": str(tree)}
        self._started: list[tuple[subprocess.Popen[str], Lines]] = []

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=self._tree, env=self._env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, worker: str, concurrency: int) -> tuple["subprocess.Popen[str]", "Web"]:
        """A worker with that node name and a web process, both ready."""
        port = ports.any_free()
        command = f"celery -A chatsite worker -Q gpu -P threads -c {concurrency} -n {worker}@%h"
        process, log = self._launch(f"{command} --without-mingle --without-gossip -E -l INFO")
        _, web_log = self._launch(f"daphne -b {ports.LOOPBACK} -p {port} chatsite.asgi:application")
        log.wait_for(" ready.")
        web_log.wait_for("Listening on TCP")
        return process, Web(f"http://{ports.LOOPBACK}:{port}")

    def _launch(self, command: str) -> tuple["subprocess.Popen[str]", Lines]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command.split()],
            cwd=self._tree,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append((process, Lines(process)))
        return self._started[-1]

    @property
    def text(self) -> str:
        """All that its processes have printed."""
        return "\n".join(lines.text for _, lines in self._started)

    def stop(self) -> None:
        for process, lines in self._started:
            if process.poll() is None:
                process.terminate()
            process.wait(PATIENCE_SECONDS)
            lines.wait_for_end()


class Web:
    """Another web process of a site, at an address of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def visit(self, person: Person) -> Person:
        """The same person, with the same session, here."""
        visitor = copy.copy(person)
        visitor.site = cast(Site, self)
        return visitor
