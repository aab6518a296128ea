"""Watches the site's own health page in a thread until prompts are answered, if not to each model."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

POLL_SECONDS = 0.3
FIRST_REPEAT_SECONDS = 10.0
LONGEST_REPEAT_SECONDS = 60.0
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """`usable` without being ready: a model can't be had, as the reasons say, and another one answers."""

    usable: bool
    reasons: tuple[str, ...]


def watch(address: str, tell: Callable[[Readiness], None]) -> threading.Thread:
    """Call `tell` with each new answer, and with an old one again more and more rarely, until one is usable."""
    thread = threading.Thread(target=_watch, args=(address, tell), name="readiness", daemon=True)
    thread.start()
    return thread


def _watch(address: str, tell: Callable[[Readiness], None]) -> None:
    # A worker that fails and is started again goes through the same answers each time.
    told: dict[Readiness, float] = {}
    repeat = FIRST_REPEAT_SECONDS
    pause = threading.Event()
    while True:
        answer = ask(address)
        now = time.monotonic()
        if answer not in told:
            tell(answer)
            told[answer] = now
        elif now - told[answer] > repeat:
            tell(answer)
            told[answer] = now
            repeat = min(LONGEST_REPEAT_SECONDS, 2 * repeat)
        if answer.usable:
            return
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
        return Readiness(bool(found["ready"] or found.get("usable")), tuple(map(str, found["reasons"])))
    except (ValueError, KeyError, TypeError):
        return Readiness(False, ("the health page shows an error",))
