"""A job's stream in Redis: its keys, its entries, its scripts, and the clients of this process.

An entry `<seq>-0` is what one step gave one sequence: the token ids sampled and the text released. Seq counts from
1 without a gap; once numbered an entry never changes. The last entry is the end marker: the frame of the end.
Beside the stream stands a hash with the epoch that may write and the origin, the epoch that wrote seq 1.
"""

import asyncio
import json
import uuid
import weakref
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from uuid import UUID

import redis
import redis.asyncio
from channels.layers import get_channel_layer

from generation import conf, keepalive

RUNNING_TTL_SECONDS = 24 * 3600
ENDED_TTL_SECONDS = 3600
REDIS_ID_KEY = "generation:redis-id"

APPEND = files("generation.delivery").joinpath("append.lua").read_text(encoding="utf-8")
DECLARE = files("generation.delivery").joinpath("declare.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Entry:
    seq: int
    ids: tuple[int, ...]
    text: str
    end: dict[str, Any] | None = None
    """The frame of the end, in the marker only."""

    @property
    def fields(self) -> tuple[str, str, str]:
        """(ids, text, end) as they are stored."""
        return ",".join(map(str, self.ids)), self.text, json.dumps(self.end) if self.end else ""


def parse_entry(entry_id: bytes, fields: dict[bytes, bytes]) -> Entry:
    ids, end = fields[b"i"].decode(), fields.get(b"e", b"")
    return Entry(
        seq=int(entry_id.partition(b"-")[0]),
        ids=tuple(map(int, ids.split(","))) if ids else (),
        text=fields[b"t"].decode("utf-8"),
        end=json.loads(end) if end else None,
    )


def tokens_key(job_id: UUID) -> str:
    return f"generation:tokens:{job_id}"


def owner_key(job_id: UUID) -> str:
    return f"generation:tokens:{job_id}:owner"


def group(job_id: UUID) -> str:
    """The job's channel group."""
    return f"job.{job_id}"


def group_channel(job_id: UUID) -> str:
    """The Redis channel on which the channel layer listens for the job's group."""
    return channel_of(group(job_id))


def channel_of(group_name: str) -> str:
    return f"{_prefix()}__group__{group_name}"


@cache
def _prefix() -> str:
    from django.conf import settings

    layer: dict[str, Any] = settings.CHANNEL_LAYERS["default"]
    return str(layer.get("CONFIG", {}).get("prefix", "asgi"))


def wire(message: dict[str, Any]) -> bytes:
    """A message as the channel layer reads it off Redis."""
    payload: bytes = get_channel_layer().serialize(message)
    return payload


@cache
def sync_client() -> redis.Redis:
    """This process's client for threads. Its calls raise within seconds when Redis is away."""
    url = conf.redis_url()
    return redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2, **keepalive.options(url))


_async_clients: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis]" = (
    weakref.WeakKeyDictionary()
)


def async_client() -> redis.asyncio.Redis:
    """The running loop's client: a connection pool belongs to one loop."""
    loop = asyncio.get_running_loop()
    if loop not in _async_clients:
        url = conf.redis_url()
        _async_clients[loop] = redis.asyncio.Redis.from_url(
            url, socket_timeout=5, socket_connect_timeout=2, **keepalive.options(url)
        )
    return _async_clients[loop]


def redis_id(client: redis.Redis) -> str:
    """The random id kept in this Redis, made if it has none; two processes on one Redis read the same."""
    client.set(REDIS_ID_KEY, str(uuid.uuid4()), nx=True)
    stored: bytes = client.get(REDIS_ID_KEY)
    return stored.decode()


def evicting_policy(client: redis.Redis) -> str:
    """The policy by which this Redis throws keys away when it is full; empty if it keeps them or doesn't tell."""
    try:
        policy = client.config_get("maxmemory-policy").get("maxmemory-policy", "noeviction")
    except redis.RedisError:
        return ""  # hosted servers often forbid the question
    return "" if policy == "noeviction" else str(policy)


def read_entries(client: redis.Redis, job_id: UUID) -> list[Entry]:
    """All entries of a job's stream, for a thread."""
    return [parse_entry(*entry) for entry in client.xrange(tokens_key(job_id))]
