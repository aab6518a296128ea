"""What must hold when all is quiet again: rows, streams, connections, keys, processes."""

import json
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgpack
import redis

from tests.chaos.people import Reply
from tests.site import Site

_ROWS = """
import json
from generation.models import Job
fields = ("id", "state", "text", "last_seq", "epoch", "completion_tokens")
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
            found.append(f"the prompt {reply.prompt[:20]!r} has no job")
        elif row["state"] != reply.end or row["text"] != reply.text:
            found.append(
                f"job {reply.job} is {row['state']} with {row['text']!r}; received {reply.end}: {reply.text!r}"
            )
    asked = {reply.job for reply in replies}
    found += [f"job {job} was never asked for" for job in stored if job not in asked]
    found += [
        f"job {job} is still {row['state']}" for job, row in stored.items() if row["state"] in ("queued", "running")
    ]
    found += [f"two jobs share the nonce of {nonce}" for nonce, n in _nonces(stored).items() if n > 1]
    return found


def _nonces(stored: dict[str, dict[str, Any]]) -> Counter[str]:
    """How many jobs hold each prompt's nonce: more than one means that a text went to another's reply."""
    counter: Counter[str] = Counter()
    for row in stored.values():
        counter.update({word.split(".")[0] for word in row["text"].split()})
    return counter


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
            except redis.RedisError:
                time.sleep(0.2)

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "job.token":
            seen = self.num_epochs[message["job"]]
            if seen and message["epoch"] < max(seen):
                self.complaints.append(f"job {message['job']}: epoch {message['epoch']} wrote after {max(seen)}")
            seen.add(message["epoch"])


def measure(site: Site) -> dict[str, int]:
    """What may grow by a leak: threads and open files of each process, connections and keys of Redis."""
    found: dict[str, int] = {}
    for name in ("web", "worker"):
        process = Path(f"/proc/{site.up['pids'][name]}")
        found[f"{name} threads"] = len(list((process / "task").iterdir()))
        found[f"{name} open files"] = len(list((process / "fd").iterdir()))
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        found["Redis connections"] = len(client.client_list())
        keys = list(client.scan_iter("generation:tokens:*"))
        found["stream keys without a TTL"] = sum(client.ttl(key) == -1 for key in keys)
        found["waiting messages"] = client.llen("gpu")
    return found
