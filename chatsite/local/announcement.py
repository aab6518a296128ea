"""What a person and other programs are told about the running site: the printed box, up.json, local.env."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from chatsite import environment
from chatsite.local import first_start
from chatsite.local.folder import VarFolder
from chatsite.local.preparation import Preparation
from chatsite.local.programs import FLOWER_USER

PARTS = ("web", "worker", "redis", "flower")


@dataclass(frozen=True, slots=True)
class Announcement:
    """Absent parts are None. `pids` has further workers under their own names."""

    chat_url: str
    admin_url: str
    admin_user: str
    admin_password: str | None
    flower_url: str | None
    flower_user: str | None
    flower_password: str | None
    redis_url: str
    database_url: str
    pids: dict[str, int | None]

    @classmethod
    def of(
        cls, preparation: Preparation, chat_url: str, admin_password: str | None, pids: Mapping[str, int]
    ) -> "Announcement":
        has_flower = preparation.flower_port is not None
        return cls(
            chat_url=chat_url,
            admin_url=f"{preparation.address}/admin/",
            admin_user=first_start.ADMIN,
            admin_password=admin_password,
            flower_url=settings.GENERATION_FLOWER_URL if has_flower else None,
            flower_user=FLOWER_USER if has_flower else None,
            flower_password=preparation.folder.secret("flower_password") if has_flower else None,
            redis_url=settings.REDIS_URL,
            database_url=settings.DATABASE_URL,
            pids={part: pids.get(part) for part in PARTS} | dict(pids),
        )

    def write(self, folder: VarFolder) -> None:
        folder.write_json("up.json", {name: getattr(self, name) for name in self.__slots__})

    def box(self) -> str:
        lines = [
            "Tokenline is ready",
            "",
            f"Chat    {self.chat_url}",
            "        signs you in once; another link: python manage.py link",
            f"Admin   {self.admin_url}   user {self.admin_user}   password {self.admin_password or '(yours)'}",
        ]
        if self.flower_url:
            lines.append(f"Flower  {self.flower_url}   user {self.flower_user}   password {self.flower_password}")
        lines += ["", "Ctrl-C stops everything."]
        rule = "─" * max(map(len, lines))
        return "\n".join(["", rule, *lines, rule, ""])


def write_local_environment(folder: VarFolder) -> None:
    """What other commands in this folder take where their environment doesn't set it."""
    known = {name: os.environ[name] for name in environment.names_read() if os.environ.get(name)}
    known["DATABASE_URL"] = settings.DATABASE_URL
    lines = [f"{name}={value}" for name, value in sorted(known.items()) if "\n" not in value]
    folder.write("local.env", "\n".join(lines) + "\n")
