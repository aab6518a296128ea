"""What `manage.py up` does before Django loads its settings: the folder, the lock and the environment.

Settings need a secret key and Redis' address, which in local mode are made here and kept in `var/`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chatsite.local import options, orphans, ports, redis_server
from chatsite.local.folder import InUse, VarFolder


@dataclass(frozen=True, slots=True)
class Preparation:
    """`redis_port` is None where REDIS_URL names a Redis that isn't ours."""

    folder: VarFolder
    port: int
    redis_port: int | None
    flower_port: int | None

    @property
    def address(self) -> str:
        return f"http://{ports.LOOPBACK}:{self.port}"


_prepared: Preparation | None = None


def prepared() -> Preparation | None:
    return _prepared


def prepare(arguments: Sequence[str]) -> None:
    """Take the folder and set this process's environment; ends the process with a message where it can't."""
    global _prepared
    parser = argparse.ArgumentParser(prog="manage.py up", add_help=False)
    options.add_arguments(parser)
    parser.add_argument("-h", "--help", action="store_true")
    chosen, _ = parser.parse_known_args(arguments)
    if chosen.help:
        os.environ.setdefault("SECRET_KEY", "for-the-help-text-only")
        return
    _prepared = _take(chosen)


def _take(chosen: argparse.Namespace) -> Preparation:
    folder = VarFolder(chosen.var or Path(os.environ.get("CHATSITE_VAR") or "var"))
    port: int = chosen.port or ports.any_free()
    try:
        folder.lock(f"http://{ports.LOOPBACK}:{port}/")
    except InUse as error:
        sys.exit(f"Tokenline already runs in {folder.path}: {error.address}\n`manage.py link` gives a link to sign in.")
    orphans.end(folder, lambda text: print(text, flush=True))
    if not ports.is_free(port):
        sys.exit(f"Port {port} is taken. Give another one, such as --port {port + 1}, or --port 0 for any.")
    # What an earlier run wrote holds no longer, and must not fill in for what is not set this time.
    folder.remove("up.json")
    folder.remove("local.env")

    environ = os.environ
    environ["CHATSITE_VAR"] = str(folder.path)
    environ["CHATSITE_LOCAL"] = "1"
    environ["CHATSITE_PORT"] = str(port)
    environ["PYTHONUNBUFFERED"] = "1"
    if not environ.get("SECRET_KEY"):
        environ["SECRET_KEY"] = folder.secret("secret_key", 48)
    if not environ.get("ALLOWED_HOSTS"):
        environ["ALLOWED_HOSTS"] = "127.0.0.1,localhost,[::1]"
    redis_port = None
    if not environ.get("REDIS_URL"):
        try:
            redis_server.find_program()
        except redis_server.RedisMissing as error:
            sys.exit(str(error))
        redis_port = ports.kept(folder, "redis")
        environ["REDIS_URL"] = redis_server.url(redis_port, folder.secret("redis_password"))
    flower_port = None
    if not chosen.no_flower:
        flower_port = ports.kept(folder, "flower")
        environ["CHATSITE_FLOWER_URL"] = f"http://{ports.LOOPBACK}:{flower_port}/"
    return Preparation(folder, port, redis_port, flower_port)
