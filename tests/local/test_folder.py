"""The folder of local mode, its secrets, ports and lock, and the embedded Redis' configuration."""

import socket
import stat
from pathlib import Path

import pytest

from chatsite.local import orphans, ports, redis_server
from chatsite.local.folder import InUse, VarFolder


def test_it_makes_a_secret_once(tmp_path: Path) -> None:
    folder = VarFolder(tmp_path)
    secret = folder.secret("key")
    assert len(secret) > 20
    assert folder.secret("key") == secret
    assert VarFolder(tmp_path / "other").secret("key") != secret


def test_it_never_leaves_a_readable_moment_to_others(tmp_path: Path) -> None:
    folder = VarFolder(tmp_path)
    folder.file("up.json").write_text("old")
    folder.file("up.json").chmod(0o644)
    folder.write("up.json", "new")
    assert stat.S_IMODE(folder.file("up.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["up.json"]


def test_it_is_locked_for_one_at_a_time_and_tells_who_it_is(tmp_path: Path) -> None:
    VarFolder(tmp_path / "other").lock("http://127.0.0.1:1/")
    VarFolder(tmp_path).lock("http://127.0.0.1:2/")
    with pytest.raises(InUse) as refused:
        VarFolder(tmp_path).lock("http://127.0.0.1:3/")
    assert refused.value.address == "http://127.0.0.1:2/"


def test_it_keeps_a_port_while_that_is_free(tmp_path: Path) -> None:
    folder = VarFolder(tmp_path)
    port = ports.kept(folder, "redis")
    assert ports.kept(folder, "redis") == port
    with socket.create_server((ports.LOOPBACK, port)):
        assert ports.kept(folder, "redis") != port


def test_it_leaves_a_stranger_alone_that_has_an_orphans_pid(tmp_path: Path) -> None:
    """The pid was recorded, its process ended, and the number went to somebody else."""
    import subprocess
    import sys

    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        folder = VarFolder(tmp_path)
        orphans.record(folder, [("web", stranger.pid)])
        entries = folder.read_json(orphans.RECORD)
        entries[0]["started"] -= 1
        folder.write_json(orphans.RECORD, entries)
        told: list[str] = []
        orphans.end(folder, told.append)
        assert stranger.poll() is None
        assert told == []
        assert not folder.file(orphans.RECORD).exists()
    finally:
        stranger.communicate()


def test_it_configures_redis_for_one_machine_and_for_survival(tmp_path: Path) -> None:
    path = redis_server.configure(VarFolder(tmp_path / 'a "quoted" name'), 7777, "secret")
    lines = path.read_text().splitlines()
    for line in ("bind 127.0.0.1", "requirepass secret", "appendonly yes", "maxmemory-policy noeviction"):
        assert line in lines
    assert f'dir "{tmp_path}/a \\"quoted\\" name/redis"' in lines
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
