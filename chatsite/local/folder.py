"""The folder `var/`: its files, its secrets and its lock. It knows nothing of processes or Django."""

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any


class InUse(Exception):
    """Another `up` holds the folder; `address` is that site's, as far as it is known."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


class VarFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        # Conversations are nobody else's business.
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock: int | None = None

    def file(self, name: str) -> Path:
        return self.path / name

    def folder(self, name: str) -> Path:
        """A subfolder that only its owner may enter."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def lock(self, address: str) -> None:
        """Take the folder for this process and all its life; raises InUse. The system frees it at our death."""
        descriptor = os.open(self.file("up.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode()
            os.close(descriptor)
            raise InUse(holder.strip()) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, address.encode())
        self._lock = descriptor  # kept open: closing it would free the lock

    def secret(self, name: str, num_bytes: int = 24) -> str:
        """The secret in this file, made at first use."""
        path = self.file(name)
        try:
            known = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            known = ""
        if not known:
            known = secrets.token_urlsafe(num_bytes)
            self.write(name, known + "\n")
        return known

    def write(self, name: str, text: str) -> None:
        """Write by rename and readable by the owner alone: a reader sees the old or the new, never a half."""
        path = self.file(name)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)

    def write_json(self, name: str, value: object) -> None:
        self.write(name, json.dumps(value, indent=2) + "\n")

    def read_json(self, name: str) -> Any:
        """What the file holds; None if it is missing or broken."""
        try:
            return json.loads(self.file(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def remove(self, name: str) -> None:
        self.file(name).unlink(missing_ok=True)
