"""Which Redis a URL or a set of connection options names, comparable and printable without its password.

Knows the spellings of redis-py, Kombu and channels_redis; opens no connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SOCKET_SCHEMES = ("unix", "redis+socket", "rediss+socket")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """`place` is `host:port`, a socket's path, or the sentinels and their master; `kind` keeps them apart."""

    kind: str
    place: str
    database: int | str = 0

    def __str__(self) -> str:
        scheme = {"tcp": "redis", "socket": "unix"}.get(self.kind, self.kind)
        return f"{scheme}://{self.place}" + (f"/{self.database}" if self.kind == "tcp" else f" ({self.database})")

    @classmethod
    def parse(cls, url: object, options: Mapping[str, Any] | None = None) -> "RedisAddress":
        """From a URL of redis-py or Kombu; `options`: Kombu's transport options, which name a master."""
        if isinstance(url, (list, tuple)):
            url = ";".join(map(str, url))
        if not url:
            return cls("none", "not set")
        first, *others = str(url).split(";")
        parts = urlsplit(first)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme in SOCKET_SCHEMES:
            path = unquote(parts.netloc.rpartition("@")[2] + parts.path)
            return cls("socket", path, _database(query.get("virtual_host") or query.get("db")))
        if parts.scheme == "sentinel":
            nodes = sorted(_place(urlsplit(each), 26379) for each in (first, *others) if each)
            return cls._sentinel(nodes, (options or {}).get("master_name"), _database(parts.path))
        if parts.scheme not in ("redis", "rediss"):
            return cls(parts.scheme or "unknown", _place(parts, 0))
        return cls("tcp", _place(parts, 6379), _database(query.get("db") or query.get("virtual_host") or parts.path))

    @classmethod
    def of_layer_host(cls, host: object) -> "RedisAddress":
        """From an entry of a channel layer's `hosts`: a URL, a pair, or a mapping of connection options."""
        if isinstance(host, (list, tuple)):
            return cls("tcp", f"{_host(str(host[0]))}:{host[1]}")
        if not isinstance(host, Mapping):
            return cls.parse(host)
        database = _database(host.get("db"))
        if host.get("master_name"):
            nodes = sorted(f"{_host(str(name))}:{port}" for name, port in host.get("sentinels", ()))
            return cls._sentinel(nodes, host["master_name"], database)
        if "address" in host:
            return cls.parse(host["address"])
        if host.get("path") or host.get("unix_socket_path"):
            return cls("socket", str(host.get("path") or host["unix_socket_path"]), database)
        return cls("tcp", f"{_host(str(host.get('host', 'localhost')))}:{host.get('port', 6379)}", database)

    @classmethod
    def _sentinel(cls, nodes: list[str], master: object, database: int | str) -> "RedisAddress":
        return cls("sentinel", f"{','.join(nodes)}#{master}", database)


def _host(name: str) -> str:
    """`localhost` and the loopback addresses are one place; spelling them differently isn't a fault."""
    return "127.0.0.1" if name.lower() in ("", "localhost", "::1") else name.lower()


def _place(parts: Any, default_port: int) -> str:
    try:
        port = parts.port or default_port
    except ValueError:
        port = "?"
    return f"{_host(parts.hostname or '')}:{port}"


def _database(text: object) -> int | str:
    name = str(text or "0").strip("/") or "0"
    return int(name) if name.isdigit() else name
