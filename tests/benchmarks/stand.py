"""The site's processes without their supervisor: a Redis, and as many web processes and workers as are needed."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chatsite.local import ports, redis_server
from chatsite.local.folder import VarFolder
from tests.environment import ROOT

PATIENCE_SECONDS = 60.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process:
    """One of the site's processes. `port` is a web process's."""

    def __init__(self, command: tuple[str, ...], env: dict[str, str], log: Path, port: int = 0) -> None:
        self.port = port
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        after_name = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_SECOND

    @property
    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def stay_on(self, cores: set[int]) -> None:
        """With all threads that it has."""
        for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)

    def check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"a process ended: {self._log}\n{self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Stand:
    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self._var = VarFolder(folder)
        self._started: list[Process] = []
        password, port = self._var.secret("redis_password"), ports.any_free()
        configuration = redis_server.configure(self._var, port, password)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GENERATION_", "CHATSITE_"))}
        self.env = kept | {
            "DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings",
            "DEBUG": "",
            "SECRET_KEY": self._var.secret("secret_key"),
            "CHATSITE_VAR": str(self._var.path),
            "ALLOWED_HOSTS": ports.LOOPBACK,
            "DATABASE_URL": "",
            "REDIS_URL": redis_server.url(port, password),
            "GENERATION_MODELS": "mock=mock:?rate=50",
            "GENERATION_MESSAGES_PER_MINUTE": "1000000",
            "GENERATION_MAX_JOBS_PER_USER": "1000000",
            "GENERATION_MAX_QUEUE_SIZE": "1000000",
            **environ,
        }
        self.redis = self._start((redis_server.find_program(), str(configuration)), "redis")
        redis_server.wait_until_it_answers(self.env["REDIS_URL"])

    def set_up_here(self) -> None:
        """Make this process one of the site's, with an empty database."""
        os.environ |= self.env
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)

    def start_web(self) -> Process:
        from chatsite.local import programs  # it needs settings

        port = ports.any_free()
        web = self._start(programs.web(port).argv, f"web-{port}", port)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection((ports.LOOPBACK, port), 1).close()
                return web
            except OSError:
                web.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def start_worker(self, concurrency: int) -> Process:
        """Returns once it has its models."""
        from chatsite.local import programs
        from generation.models import Worker

        worker = self._start(programs.workers(concurrency)[0].argv, "worker")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(row.ready_models for row in Worker.objects.filter(stopped_at=None)):
            worker.check()
            if time.monotonic() > deadline:
                raise TimeoutError("the worker has no model")
            time.sleep(0.1)
        return worker

    def close(self) -> None:
        for process in reversed(self._started):
            process.stop()

    def _start(self, command: tuple[str, ...], name: str, port: int = 0) -> Process:
        process = Process(command, self.env, self._var.file(f"{name}.log"), port)
        self._started.append(process)
        return process


@contextmanager
def stand(folder: Path) -> Iterator[Stand]:
    """One that this process is set up for, which it can be only once."""
    made = Stand(folder)
    try:
        made.set_up_here()
        yield made
    finally:
        made.close()


def python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)
