"""A client that keeps its socket open and reads nothing until somebody asks it to."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from websockets.sync.client import connect

from tests.chat.sockets import PATIENCE_SECONDS, Person, Socket


@contextmanager
def deaf_socket(person: Person, *, html: bool) -> Iterator[Socket]:
    """It takes nothing off the wire until somebody asks for a frame, and acknowledges nothing."""
    address = f"ws://{urlsplit(person.site.url).netloc}/ws/chat/new/{'?html=1' if html else ''}"
    with connect(
        address,
        origin=person.site.url,  # type: ignore[arg-type]
        additional_headers=person.headers,
        proxy=None,
        compression=None,
        max_size=None,
        max_queue=1,
        open_timeout=PATIENCE_SECONDS,
        close_timeout=5,
    ) as connection:
        socket = Socket(connection)
        socket.acknowledges = False
        assert socket.next()["type"] == "hello"
        yield socket
