"""How soon a connection to Redis that was cut off is noticed: within a quarter of a minute, on either side's silence.

A network that breaks tells nobody. Left to the system's defaults a waiting reader would hear of it after two hours,
and a writer after fifteen minutes.
"""

import socket
from typing import Any

IDLE_SECONDS = 5
INTERVAL_SECONDS = 3
PROBES = 3
UNANSWERED_MILLISECONDS = 10_000

_WANTED = {
    "TCP_KEEPIDLE": IDLE_SECONDS,
    "TCP_KEEPINTVL": INTERVAL_SECONDS,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": UNANSWERED_MILLISECONDS,
}
TCP_OPTIONS: dict[int, int] = {getattr(socket, name): value for name, value in _WANTED.items() if hasattr(socket, name)}
"""Options of the TCP socket, as far as this platform has them."""


def options(url: str) -> dict[str, Any]:
    """Keyword arguments for redis-py's client of this URL; a Unix socket is never cut off and takes none."""
    if url.startswith("unix:"):
        return {}
    return {"socket_keepalive": True, "socket_keepalive_options": TCP_OPTIONS}
