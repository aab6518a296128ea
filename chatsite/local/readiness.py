"""Watches the site's own health page in a thread until it says ready."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

POLL_SECONDS = 0.3
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    reasons: tuple[str, ...]


def watch(address: str, tell: Callable[[Readiness], None]) -> threading.Thread:
    """Call `tell` with each answer that differs from the one before; the last is the first that is ready."""
    thread = threading.Thread(target=_watch, args=(address, tell), name="readiness", daemon=True)
    thread.start()
    return thread


def _watch(address: str, tell: Callable[[Readiness], None]) -> None:
    last: Readiness | None = None
    pause = threading.Event()
    while last is None or not last.ready:
        answer = ask(address)
        if answer != last:
            tell(answer)
        last = answer
        if not answer.ready:
            pause.wait(POLL_SECONDS)


def ask(address: str) -> Readiness:
    # Loopback only: a proxy of the environment has no business here.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/health/ready", timeout=TIMEOUT_SECONDS) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
    except OSError:
        return Readiness(False, ("the web process doesn't answer yet",))
    try:
        found = json.loads(body)
        return Readiness(bool(found["ready"]), tuple(map(str, found["reasons"])))
    except (ValueError, KeyError, TypeError):
        return Readiness(False, ("the health page shows an error",))
