"""`manage.py up`: the whole site on this machine, nothing to install or configure."""

import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from chatsite.local import concurrency, first_start, links, options, programs, readiness, redis_server
from chatsite.local.announcement import Announcement, write_local_environment
from chatsite.local.output import Output
from chatsite.local.preparation import Preparation, prepared
from chatsite.local.readiness import Readiness
from chatsite.local.supervisor import Supervisor


class Command(BaseCommand):
    help = "Start the whole site on this machine: Redis, web, a GPU worker and Flower."

    def add_arguments(self, parser: CommandParser) -> None:
        options.add_arguments(parser)

    def handle(self, *args: Any, **chosen: Any) -> None:
        preparation = prepared()
        if preparation is None:
            raise CommandError("Start it as `python manage.py up`.")
        # Processes keep our folder, in which relative paths were meant, and find the site's code nevertheless.
        path = [str(programs.project_folder()), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        try:
            _Site(preparation, *concurrency.choose(chosen["concurrency"])).run()
        except redis_server.RedisMissing as error:
            raise CommandError(str(error)) from None


class _Site:
    """One run of `up`, from the first process to the last."""

    def __init__(self, preparation: Preparation, num_at_a_time: int, reason: str) -> None:
        self._preparation = preparation
        self._folder = preparation.folder
        self._output = Output()
        self._workers = programs.workers(num_at_a_time)
        self._reason = reason
        order = ["web", *(worker.name for worker in self._workers), "flower", "redis"]
        self._supervisor = Supervisor(self._folder, self._output, order)
        self._admin_password: str | None = None
        self._chat_url = f"{preparation.address}/"
        self._is_announced = False

    def run(self) -> None:
        self._supervisor.listen_to_signals()
        try:
            self._start()
            self._supervisor.run(self._on_restart, self._on_readiness)
        finally:
            self._supervisor.stop_all()
            self._folder.remove("up.json")
        self._output.tell("all stopped")

    def _start(self) -> None:
        start, preparation = self._supervisor.start, self._preparation
        if preparation.redis_port is not None:
            start(programs.redis(self._folder, preparation.redis_port))
        redis_server.wait_until_it_answers(settings.REDIS_URL)
        self._output.tell("preparing the database and the static files")
        first_start.migrate()
        first_start.collect_static_files(self._folder)
        self._admin_password = first_start.admin_password(self._folder)
        write_local_environment(self._folder)
        connections.close_all()
        self._fetch_models()
        if self._supervisor.stopping:
            return
        self._output.tell(self._reason)
        for worker in self._workers:
            start(worker)
        start(programs.web(preparation.port))
        if preparation.flower_port is not None:
            start(programs.flower(self._folder, preparation.flower_port))
        readiness.watch(preparation.address, self._supervisor.tell)

    def _fetch_models(self) -> None:
        fetch = programs.fetch_of_builtin_models()
        if fetch is not None and not self._supervisor.stopping and self._supervisor.finish(fetch):
            raise CommandError("The built-in model couldn't be fetched; the reason stands above.")

    def _on_readiness(self, answer: object) -> None:
        assert isinstance(answer, Readiness)
        if not answer.usable:
            self._output.tell("not ready yet: " + "; ".join(answer.reasons))
            return
        for reason in answer.reasons:
            self._output.tell(f"warning: {reason}")
        self._is_announced = True
        announcement = self._announce()
        self._output.plain(announcement.box())

    def _on_restart(self, names: list[str]) -> None:
        if self._is_announced:
            self._announce()
        pids = self._supervisor.pids
        self._output.tell("started again: " + ", ".join(f"{name} (pid {pids[name]})" for name in names))

    def _announce(self) -> Announcement:
        self._chat_url = self._new_link()
        announcement = Announcement.of(self._preparation, self._chat_url, self._admin_password, self._supervisor.pids)
        write_local_environment(self._folder)
        announcement.write(self._folder)
        connections.close_all()
        return announcement

    def _new_link(self) -> str:
        """A new one each time, the last one may have been used; but that while the database is away."""
        try:
            return links.sign_in_link(first_start.local_person(), self._preparation.address)
        except (DatabaseError, InterfaceError) as error:
            self._output.tell(f"no new sign-in link could be made, the database is away: {error}")
            return self._chat_url
