"""A reply whose every token a test chooses, written by a process that takes a worker's part: no model says such things.

It is stored, streamed and ended the way a worker does it, a part at a time.
"""

import json
import re
import subprocess
import sys
from types import TracebackType

from tests.environment import ROOT
from tests.site import Site

WRITE = """
import json, sys, time
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from chatsite.chat.models import Conversation, Message, ReplyJob
from generation import conf, queue
from generation.delivery.writer import TokenWriter
from generation.models import Job, Queue, Worker

name, parts, rate = json.loads(sys.stdin.readline())
now = timezone.now()
worker = Worker.objects.create(
    queue="scripted", hostname="scripted", host="scripted", boot_id="", pid_namespace="", pid=1, pid_started=1,
    started_at=now, last_seen_at=now + timedelta(hours=1),
)
conversation = Conversation.objects.create(user=User.objects.get(username=name), title="scripted")
asked = Message.objects.create(conversation=conversation, role="user", text="Say it.")
said = Message.objects.create(conversation=conversation, role="assistant", parent=asked)
job = Job.objects.create(
    user=conversation.user, queue=Queue.objects.get_or_create(name="scripted")[0], model="mock", state="running",
    messages=[dict(role="user", content="Say it.")], arrival=0, order_key=0, epoch=1, attempt=1, worker=worker,
    created_at=now, queued_at=now, started_at=now, first_started_at=now,
)
ReplyJob.objects.create(message=said, job=job)
writer = TokenWriter(conf.redis_url(), lambda job: 1, lambda job, epoch: None)
writer.start()
output = writer.open(job.pk, 1)
print(conversation.get_absolute_url(), flush=True)
for tokens in parts:
    sys.stdin.readline()
    began = time.monotonic()
    for number, token in enumerate(tokens):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        writer.put(job.pk, 1, (number,), token)
        writer.wake()
sys.stdin.readline()
usage = dict(prompt_tokens=2, completion_tokens=len(output.ids), cached_tokens=0)
seq = len(output.entries) + 1
queue.end(job.pk, 1, Job.State.FINISHED, text=output.text, origin=1, last_seq=seq, finish_reason="stop", **usage)
marker = dict(type="finished", seq=seq, reason="stop", usage=usage, timings={})
writer.end(output, marker)
writer.close()
Worker.objects.filter(pk=worker.pk).update(stopped_at=timezone.now(), last_seen_at=timezone.now())
"""


class ScriptedReply:
    """`parts` of a text, each streamed on `go`, at `rate` tokens a second; after the last one `go` ends it."""

    def __init__(self, site: Site, person: str, parts: list[str], rate: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "shell", "--no-imports", "-c", WRITE],
            cwd=ROOT,
            env=site.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tell(json.dumps([person, [re.findall(r"\s*\S+\s*", part) for part in parts], rate]))
        assert self._process.stdout is not None
        self.address = site.url + self._process.stdout.readline().strip()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def go(self) -> None:
        self._tell("")

    def __enter__(self) -> "ScriptedReply":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()
