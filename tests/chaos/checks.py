"""What must hold when all is quiet again: rows, streams, connections, keys, processes."""

import json
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgpack
import redis

from tests.chaos.faults import Target
from tests.chaos.people import Reply
from tests.site import Site

_ROWS = """
import json
from generation.models import Job
fields = ("id", "state", "text", "last_seq", "epoch", "completion_tokens", "error_traceback")
print(json.dumps([{**row, "id": str(row["id"])} for row in Job.objects.values(*fields)]))
"""


def rows(site: Site) -> dict[str, dict[str, Any]]:
    """Every job's row, by its id."""
    done = site.manage("shell", "--no-imports", "-c", _ROWS)
    assert done.returncode == 0, done.stderr
    return {row["id"]: row for row in json.loads(done.stdout)}


def complaints(replies: list[Reply], stored: dict[str, dict[str, Any]]) -> list[str]:
    """Everything that isn't as it must be, one line each; empty is good."""
    found = [f"job {reply.job}: {complaint}" for reply in replies for complaint in reply.complaints()]
    for reply in replies:
        row = stored.get(reply.job)
        if row is None:
            found.append(f"the prompt {reply.ask.text[:20]!r} has no job")
            continue
        # A failed step takes its neighbours along; nothing else may fail anybody.
        due = (reply.ask.fails_with and reply.code == reply.ask.fails_with) or "on purpose" in row["error_traceback"]
        if reply.end == "failed" and not due:
            found.append(f"job {reply.job} failed: {reply.end_frame} {row['error_traceback'][-300:]}")
        if row["state"] != reply.end or row["text"] != reply.text:
            found.append(
                f"job {reply.job} is {row['state']} with {row['text']!r}; received {reply.end}: {reply.text!r}"
            )
    asked = {reply.job for reply in replies}
    found += [f"job {job} was never asked for" for job in stored if job not in asked]
    found += [
        f"job {job} is still {row['state']}" for job, row in stored.items() if row["state"] in ("queued", "running")
    ]
    return found


class EpochWatch:
    """Listens to every job's channel: once a newer epoch has written, an older one must not."""

    def __init__(self, site: Site) -> None:
        self.complaints: list[str] = []
        self.num_epochs: dict[str, set[int]] = defaultdict(set)
        self._site = site
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                with redis.Redis.from_url(self._site.up["redis_url"]) as client, client.pubsub() as pubsub:
                    pubsub.psubscribe("asgi__group__job.*")
                    while not self._stopping.is_set():
                        message = pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
                        if message:
                            self._take(msgpack.unpackb(message["data"]))
            except (redis.RedisError, FileNotFoundError):
                time.sleep(0.2)

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "job.token":
            seen = self.num_epochs[message["job"]]
            if seen and message["epoch"] < max(seen):
                self.complaints.append(f"job {message['job']}: epoch {message['epoch']} wrote after {max(seen)}")
            seen.add(message["epoch"])


def measure(target: Target) -> dict[str, int]:
    """What may grow by a leak: threads, files, connections, keys, messages, busy slots, processes."""
    site = target.site
    found: dict[str, int] = {}
    for name in ("web", "worker"):
        process = Path(f"/proc/{site.up['pids'][name]}")
        found[f"{name} threads"] = len(list((process / "task").iterdir()))
        found[f"{name} open files"] = len(list((process / "fd").iterdir()))
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        found["Redis connections"] = len(client.client_list())
        found[KEYS] = sum(client.ttl(key) == -1 for key in client.scan_iter("generation:tokens:*"))
        found[MESSAGES] = client.llen("gpu")
    if target.num_database_connections is not None:
        found["database connections"] = target.num_database_connections()
    found[ORPHANS] = len(orphans(target))
    return found


KEYS, MESSAGES, ORPHANS = "stream keys without a TTL", "waiting messages", "orphan processes"
NEVER = (KEYS, MESSAGES, ORPHANS)
"""What may not exist at all when all is quiet."""


def orphans(target: Target) -> list[int]:
    """Processes of this site that are neither its supervisor's nor a worker of ours, by their environment."""
    supervisor = target.site.process
    assert supervisor is not None
    known = {supervisor.pid, *target.site.up["pids"].values(), *target.extra_workers()}
    return [pid for pid in processes(target.site) if pid not in known and _parent(pid) not in known]


def processes(site: Site) -> list[int]:
    """Every process that was started with the site's folder in its environment or its command."""
    mark = str(site.var).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mark in told and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
