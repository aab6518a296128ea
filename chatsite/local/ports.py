"""Free ports on the loopback address, the same at the next start where that is possible."""

import contextlib
import socket

from chatsite.local.folder import VarFolder

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        # A server that ended a moment ago leaves connections in TIME_WAIT, which hold nothing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen()
        except OSError:
            return False
    return True


def any_free() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def kept(folder: VarFolder, name: str) -> int:
    """The port this part had at the last start if it is free, else another."""
    known = folder.read_json("ports.json")
    ports = known if isinstance(known, dict) else {}
    port = ports.get(name)
    if not isinstance(port, int) or not is_free(port):
        port = any_free()
        folder.write_json("ports.json", ports | {name: port})
    return port
