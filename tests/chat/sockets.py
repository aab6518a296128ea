"""People with sessions on a running site, and their sockets: sign in by a one-time link, send and collect frames."""

import http.cookiejar
import json
import sqlite3
import threading
import time
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.site import Site

Frame = dict[str, Any]
PATIENCE_SECONDS = 30.0
ENDS = ("finished", "failed", "cancelled", "expired")

_LINKS = """
from django.contrib.auth import get_user_model
from chatsite.local.links import sign_in_link
for name in {names!r}:
    print(sign_in_link(get_user_model().objects.create_user(name), {origin!r}))
"""


class Person:
    """Somebody who is signed in on a site."""

    def __init__(self, site: Site, name: str, link: str) -> None:
        self.site, self.name = site, name
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies)
        )
        self._opener.open(link).close()

    @property
    def session_key(self) -> str:
        return next(str(cookie.value) for cookie in self.cookies if cookie.name.startswith("sessionid"))

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.cookies)}

    def post(self, path: str, **fields: str) -> int:
        """Post a form with its CSRF token; the status."""
        token = next(str(cookie.value) for cookie in self.cookies if cookie.name.startswith("csrftoken"))
        body = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": token}).encode()
        with self._opener.open(f"{self.site.url}{path}", body) as response:
            return int(response.status)

    @contextmanager
    def socket(self, conversation: str = "new", *, html: bool = False, language: str = "en") -> "Iterator[Socket]":
        """A socket on that conversation, its `hello` already received."""
        headers = {**self.headers, "Accept-Language": language}
        with open_socket(self.site, conversation, html=html, **headers) as socket:
            socket.hello = socket.next()
            assert socket.hello["type"] == "hello", socket.hello
            yield socket


class Socket:
    """One connection. `frames` is all that came, heartbeats aside; tokens are acknowledged as a page does it."""

    hello: Frame

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.frames: list[Frame] = []
        self.acknowledges = True

    def raw(self, message: str | bytes) -> None:
        self.connection.send(message)

    def send(self, kind: str, **fields: Any) -> None:
        self.raw(json.dumps({"type": kind, **fields}))

    def next(self, seconds: float = PATIENCE_SECONDS) -> Frame:
        """The next frame that isn't a heartbeat."""
        deadline = time.monotonic() + seconds
        while True:
            frame: Frame = json.loads(self.connection.recv(timeout=max(0.001, deadline - time.monotonic())))
            if frame["type"] == "heartbeat":
                continue
            self.frames.append(frame)
            if self.acknowledges and frame["type"] in ("token", "html") and frame["seq"] % 50 == 0:
                self.send("ack", job=frame["job"], seq=frame["seq"])
            return frame

    def until(self, accept: Callable[[Frame], bool] | str, *, job: str | None = None) -> Frame:
        """Read on to the first frame of that type, or that is accepted; of that job if one is named."""
        accepts = (lambda frame: frame["type"] == accept) if isinstance(accept, str) else accept
        while True:
            frame = self.next()
            if accepts(frame) and job in (None, frame.get("job")):
                return frame

    def prompt(self, text: str, *, client_id: str | None = None, **fields: Any) -> Frame:
        """Send a prompt and read on to its `queued`."""
        client_id = client_id or str(uuid4())
        self.send("prompt", id=client_id, text=text, **fields)
        answers = self.until(
            lambda frame: (
                client_id in (frame.get("client_id"), frame.get("ref")) and frame["type"] in ("queued", "error")
            )
        )
        assert answers["type"] == "queued", answers
        return answers

    def end(self, job: str) -> Frame:
        """Read on to the job's end."""
        return self.until(lambda frame: frame["type"] in ENDS, job=job)

    def error(self) -> Frame:
        return self.until("error")

    def of(self, job: str, *kinds: str) -> list[Frame]:
        """The frames of a job that came so far."""
        return [frame for frame in self.frames if frame.get("job") == job and (not kinds or frame["type"] in kinds)]

    def text(self, job: str) -> str:
        """What a page shows of the job's own text now."""
        text = ""
        for frame in self.of(job, "token", "snapshot"):
            text = frame["text"] if frame["type"] == "snapshot" else text + frame["text"]
        return text

    def close_code(self) -> int:
        """Read on until the server closes; its code."""
        code = self.close_code_if_told()
        assert code is not None, "the connection broke without a close frame"
        return code

    def close_code_if_told(self) -> int | None:
        """Read on until the connection ends; the server's code, None if it broke without a close frame."""
        try:
            while True:
                self.next()
        except ConnectionClosed as closed:
            return int(closed.rcvd.code) if closed.rcvd else None

    def still_answers(self) -> None:
        """The socket is open: an unknown frame gets its error."""
        reference = str(uuid4())
        self.send("is-anybody-there", id=reference)
        assert self.until(lambda frame: frame.get("ref") == reference)["code"] == "bad_frame"


def refused(socket: Socket, message: str | bytes) -> Frame:
    """Send it; the `error` that answers it. The socket stays open."""
    socket.raw(message)
    answer = socket.next()
    assert answer["type"] == "error", answer
    assert answer["message"]
    socket.still_answers()
    return answer


def check_order(frames: list[Frame]) -> None:
    """queued*, started, prefill*, token*, one end; seq rising by one."""
    kinds = [frame["type"] for frame in frames]
    ranks = [{"queued": 0, "started": 1, "prefill": 2, "token": 3}.get(kind, 4) for kind in kinds]
    assert ranks == sorted(ranks), kinds
    assert kinds.count("started") == 1
    assert ranks.count(4) == 1
    tokens = [frame["seq"] for frame in frames if frame["type"] == "token"]
    assert tokens == list(range(1, len(tokens) + 1))
    assert frames[-1]["seq"] == len(tokens) + 1


_strangers: "weakref.WeakKeyDictionary[Site, list[tuple[str, str]]]" = weakref.WeakKeyDictionary()


def people(site: Site, number: int = 1) -> list[Person]:
    """Sign in that many people whom nobody has met yet. They are made twenty at a time, by one command."""
    strangers = _strangers.setdefault(site, [])
    while len(strangers) < number:
        names = [f"person-{uuid4().hex[:8]}" for _ in range(20)]
        made = site.manage("shell", "--no-imports", "-c", _LINKS.format(names=names, origin=site.url))
        assert made.returncode == 0, made.stderr
        strangers += zip(names, made.stdout.split(), strict=True)
    return [Person(site, *strangers.pop()) for _ in range(number)]


@contextmanager
def open_socket(
    site: Site, conversation: str = "new", *, html: bool = False, origin: str | None = "", **headers: str
) -> Iterator[Socket]:
    """A socket with these headers; `origin` defaults to the site's own, None sends none."""
    address = f"ws://{urlsplit(site.url).netloc}/ws/chat/{conversation}/{'?html=1' if html else ''}"
    connection = connect(
        address,
        origin=site.url if origin == "" else origin,  # type: ignore[arg-type]
        additional_headers=headers,
        proxy=None,
        compression=None,
        max_size=None,
        max_queue=None,
        open_timeout=PATIENCE_SECONDS,
        close_timeout=5,
    )
    with connection:
        yield Socket(connection)


def rows(site: Site, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What the running site's SQLite answers or has changed; UUIDs are 32 hexadecimal digits there."""
    with closing(sqlite3.connect(site.var / "db.sqlite3", timeout=20)) as database, database:
        return database.execute(statement, values).fetchall()


def wait_for_rows(site: Site, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows as soon as there are any: other processes' commits can only be looked for."""
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not (found := rows(site, statement, *values)):
        assert time.monotonic() < deadline, f"no row of {statement}"
        pause.wait(0.05)
    return found


def set_quota(site: Site, name: str, tokens_per_day: int) -> int:
    """Give somebody one of their own; the user's id."""
    [(user,)] = rows(site, "SELECT id FROM auth_user WHERE username = ?", name)
    rows(site, "INSERT INTO generation_quota (user_id, tokens_per_day) VALUES (?, ?)", user, tokens_per_day)
    return int(user)


def job_row(site: Site, job: str) -> tuple[Any, ...]:
    """(state, text, last_seq, finish_reason) of a job's row."""
    found = rows(site, "SELECT state, text, last_seq, finish_reason FROM generation_job WHERE id = ?", UUID(job).hex)
    return found[0]
