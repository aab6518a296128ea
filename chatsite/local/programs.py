"""The command lines of the site's processes in local mode."""

import importlib.util
import sys
from pathlib import Path

from chatsite.local import redis_server
from chatsite.local.folder import VarFolder
from chatsite.local.ports import LOOPBACK
from chatsite.local.supervisor import Program
from generation import conf
from generation.availability import NO_MODEL_STATUS

FLOWER_USER = "admin"


def redis(folder: VarFolder, port: int) -> Program:
    configuration = redis_server.configure(folder, port, folder.secret("redis_password"))
    return Program("redis", (redis_server.find_program(), str(configuration)))


def web(port: int) -> Program:
    return Program(
        "web",
        (
            *(sys.executable, "-m", "daphne", "-b", LOOPBACK, "-p", str(port)),
            *("--ping-interval", "20", "--ping-timeout", "30", "--websocket_timeout", "-1"),
            # Addresses of one-time links don't belong into a log.
            *("--access-log", "/dev/null"),
            "chatsite.asgi:application",
        ),
    )


def workers(concurrency: int) -> list[Program]:
    """One worker per queue that a model names. The first has the plain name."""
    queues = list(dict.fromkeys(spec.queue for spec in conf.models().values()))
    return [_worker(name, queue, concurrency) for name, queue in zip(worker_names(queues), queues, strict=True)]


def worker_names(queues: list[str]) -> list[str]:
    return ["worker", *(f"worker-{queue}" for queue in queues[1:])]


def _worker(name: str, queue: str, concurrency: int) -> Program:
    return Program(
        name,
        (
            *(sys.executable, "-m", "celery", "-A", "chatsite", "worker", "-Q", queue, "-P", "threads"),
            *("-c", str(concurrency), "-n", f"{queue}@%h", "--without-mingle", "--without-gossip", "-E", "-l", "INFO"),
        ),
        grace_seconds=15.0,
        meanings={NO_MODEL_STATUS: f"can load no model of queue {queue}; why stands above"},
    )


def flower(folder: VarFolder, port: int) -> Program:
    """Its password goes by the environment: command lines are public."""
    return Program(
        "flower",
        (
            *(sys.executable, "-m", "celery", "-A", "chatsite", "flower", f"--address={LOOPBACK}", f"--port={port}"),
            *("--persistent=True", f"--db={folder.folder('flower') / 'flower'}", "--max_tasks=10000"),
        ),
        environ={"FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{folder.secret('flower_password')}"},
    )


def has_flower() -> bool:
    return importlib.util.find_spec("flower") is not None


def fetch_of_builtin_models() -> Program | None:
    if not any(spec.kind == "builtin" for spec in conf.models().values()):
        return None
    return Program("model", (sys.executable, "-m", "generation.engine.builtin"))


def project_folder() -> Path:
    return Path(__file__).resolve().parents[2]
