"""The environment of tests that run in this process, with a Redis of their own.

Prepared before Django's settings are loaded. What the caller's environment says is set aside: tests must not write
into somebody's real Redis.
"""

import atexit
import os
import subprocess
import tempfile
from pathlib import Path

from django.conf import settings

from chatsite.local import ports, redis_server
from chatsite.local.folder import VarFolder

ROOT = Path(__file__).resolve().parent.parent
_temporary = tempfile.TemporaryDirectory(prefix="tokenline-tests-")


def _start_redis(folder: VarFolder) -> str:
    port, password = ports.any_free(), folder.secret("redis_password")
    configuration = redis_server.configure(folder, port, password)
    process = subprocess.Popen(
        [redis_server.find_program(), str(configuration)], stdout=subprocess.DEVNULL, start_new_session=True
    )
    atexit.register(_stop, process)
    address = redis_server.url(port, password)
    redis_server.wait_until_it_answers(address)
    return address


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()


def prepare() -> None:
    if settings.configured:
        # pytest-django loads them first where the variable is set: those of whoever started this process.
        raise RuntimeError("Django's settings were loaded before the tests' environment was prepared")
    folder = VarFolder(Path(_temporary.name))
    folder.folder("static")
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "chatsite.settings",
        "CHATSITE_VAR": str(folder.path),
        "SECRET_KEY": "for-tests-only-" + "0123456789" * 4,
        # Debug mode names static files plainly, so that pages can be shown without collecting them first.
        "DEBUG": "true",
        "REDIS_URL": _start_redis(folder),
        "DATABASE_URL": os.environ.get("TEST_DATABASE_URL", ""),
        "GENERATION_MODELS": "mock=mock:?rate=200",
        # Several processes at once on few cores: threads that wait for each other in every small operation only spin.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    atexit.register(_temporary.cleanup)


def leave() -> None:
    """Take it back: a process that is started from now on prepares its own."""
    from chatsite import environment  # reads CHATSITE_VAR when it is imported

    for name in environment.names_read() | {"DJANGO_SETTINGS_MODULE"}:
        os.environ.pop(name, None)
