"""A proxy that cuts silent connections: it hears something often enough, whatever the reply waits for."""

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from websockets.sync.client import ClientConnection, connect

from generation.consumers import HEARTBEAT_SECONDS
from generation.delivery.hub import TICK_SECONDS
from tests.chat.sockets import PATIENCE_SECONDS, Person, people
from tests.faults.brisk import FASTER
from tests.faults.conftest import ENVIRONMENT
from tests.site import Site, running

READ_TIMEOUT_SECONDS = 3.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One reply at a time, whose next token takes longer than the test."""
    environ = ENVIRONMENT | {
        "DJANGO_SETTINGS_MODULE": "tests.faults.brisk_settings",
        "GENERATION_MODELS": "mock=mock:?rate=0.02",
    }
    site = Site(tmp_path_factory.mktemp("brisk"), "--no-flower", "--concurrency", "1", **environ)
    with running(site):
        yield site


class Proxy:
    """Forwards one connection after the other, each in a thread; cuts one from which the server sends nothing."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.num_cut = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        heard_at = time.monotonic()
        with client, socket.create_connection(self._upstream) as server, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                silent = READ_TIMEOUT_SECONDS - (time.monotonic() - heard_at)
                ready = selector.select(max(0.0, silent))
                if not ready and time.monotonic() - heard_at >= READ_TIMEOUT_SECONDS:
                    self.num_cut += 1
                    return
                for key, _ in ready:
                    assert isinstance(key.fileobj, socket.socket)
                    sent = key.fileobj.recv(65_536)
                    if not sent:
                        return
                    if key.fileobj is server:
                        heard_at = time.monotonic()
                    key.data.sendall(sent)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def through(proxy: Proxy, person: Person) -> Iterator[ClientConnection]:
    """A socket of theirs that answers no ping of ours and sends none: only the server breaks the silence."""
    with connect(
        f"ws://127.0.0.1:{proxy.port}/ws/chat/new/",
        origin=person.site.url,  # type: ignore[arg-type]
        additional_headers=person.headers | {"Host": urlsplit(person.site.url).netloc},
        proxy=None,
        ping_interval=None,
        open_timeout=PATIENCE_SECONDS,
        close_timeout=5,
    ) as connection:
        yield connection


def ask(connection: ClientConnection) -> None:
    connection.send(json.dumps({"type": "prompt", "id": str(uuid4()), "text": "silence"}))


def until(connection: ClientConnection, kind: str = "") -> list[str]:
    """The types of the frames up to one of this type, or of the next one."""
    heard: list[str] = []
    while not heard or kind not in (heard[-1], ""):
        heard.append(json.loads(connection.recv(timeout=PATIENCE_SECONDS))["type"])
    return heard


def test_no_proxy_cuts_a_socket_whose_reply_waits_or_has_only_begun(site: Site) -> None:
    """A socket on which nothing was said while its reply waited was cut (websockets/ws#2283, django/daphne#4)."""
    # Ten times as fast, the promise of 15 s and a tick is within the proxy's patience.
    assert HEARTBEAT_SECONDS == 15
    assert HEARTBEAT_SECONDS / FASTER + TICK_SECONDS < READ_TIMEOUT_SECONDS
    address = urlsplit(site.url)
    assert address.hostname and address.port
    proxy = Proxy((address.hostname, address.port))
    with ExitStack() as stack:
        stack.callback(proxy.close)
        running, waiting, idle = [stack.enter_context(through(proxy, person)) for person in people(site, 3)]
        ask(running)
        heard = {"running": until(running, "started"), "waiting": [], "idle": []}
        ask(waiting)
        enough = time.monotonic() + 3 * READ_TIMEOUT_SECONDS
        for name, connection in (("running", running), ("waiting", waiting), ("idle", idle)):
            while not (time.monotonic() > enough and heard[name].count("heartbeat") >= 3):
                heard[name] += until(connection)
        assert "queued" in heard["waiting"] and "started" not in heard["waiting"]
        assert "token" not in heard["running"]
    assert proxy.num_cut == 0
