"""Watches the site's own health page in a thread until it says ready."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

POLL_SECONDS = 0.3
REPEAT_SECONDS = 10.0
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    reasons: tuple[str, ...]


def watch(address: str, tell: Callable[[Readiness], None]) -> threading.Thread:
    """Call `tell` with each new answer, and with an old one every ten seconds, until one is ready."""
    thread = threading.Thread(target=_watch, args=(address, tell), name="readiness", daemon=True)
    thread.start()
    return thread


def _watch(address: str, tell: Callable[[Readiness], None]) -> None:
    last: Readiness | None = None
    told_at = 0.0
    pause = threading.Event()
    while last is None or not last.ready:
        answer = ask(address)
        if answer != last or time.monotonic() - told_at > REPEAT_SECONDS:
            tell(answer)
            told_at = time.monotonic()
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
