"""Settings that would lose replies are refused by `manage.py check`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

from generation.redis_address import RedisAddress

PUBSUB = "channels_redis.pubsub.RedisPubSubChannelLayer"


def found() -> list[str]:
    return [str(message.id) for message in run_checks(tags=["generation"])]


def test_it_accepts_the_sites_own_settings() -> None:
    assert found() == []


@pytest.mark.parametrize("backend", ["channels_redis.core.RedisChannelLayer", "channels.layers.InMemoryChannelLayer"])
def test_it_refuses_another_channel_layer(settings: Any, backend: str) -> None:
    """After about 100 fast messages the rest vanished, with no exception (django/channels_redis#131);
    a layer in memory let a task's sends "succeed" that no browser ever got (django/channels#1876)."""
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend, "CONFIG": {"hosts": [settings.REDIS_URL]}}}
    assert "generation.E001" in found()


def test_it_refuses_a_site_without_a_channel_layer(settings: Any) -> None:
    settings.CHANNEL_LAYERS = {}
    assert found() == ["generation.E001"]


@pytest.mark.parametrize("hosts", [["redis://127.0.0.1:1", "redis://127.0.0.1:2"], "redis://127.0.0.1:1"])
def test_it_refuses_a_layer_that_is_not_one_host(settings: Any, hosts: Any) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": PUBSUB, "CONFIG": {"hosts": hosts}}}
    assert "generation.E005" in found()


def test_it_refuses_a_layer_on_another_server(settings: Any) -> None:
    other = {"BACKEND": PUBSUB, "CONFIG": {"hosts": ["redis://someone:secret@elsewhere:7000/2"]}}
    settings.CHANNEL_LAYERS = {"default": other}
    [error] = run_checks(tags=["generation"])
    assert error.id == "generation.E002"
    assert "redis://elsewhere:7000/2" in error.msg
    assert "secret" not in error.msg


def test_it_refuses_a_delivery_on_another_server(settings: Any) -> None:
    settings.REDIS_URL = "redis://elsewhere/0"
    assert "generation.E002" in found()


@pytest.mark.parametrize("text", ["mock", "a=mock: a=mock:", "a=mock:?nonsense=1", " "])
def test_it_refuses_models_that_cannot_be_read(settings: Any, text: str) -> None:
    settings.GENERATION_MODELS = text
    settings.GENERATION_DEFAULT_MODEL = ""
    assert found() == ["generation.E003"]


def test_it_refuses_a_default_model_that_is_not_configured(settings: Any) -> None:
    settings.GENERATION_MODELS = "small=mock: large=mock:"
    settings.GENERATION_DEFAULT_MODEL = "medium"
    [error] = run_checks(tags=["generation"])
    assert error.id == "generation.E004"
    assert "small, large" in (error.hint or "")


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("redis://localhost", "redis://127.0.0.1:6379/0"),
        ("redis://:pass@Cache:6380/2", "redis://user:other@cache:6380/2"),
        ("redis://cache/3", "redis://cache:6379?db=3"),
        ("redis://cache/3", "rediss://cache/3"),
        ("unix:///run/redis.sock?db=1", "redis+socket:///run/redis.sock?virtual_host=1"),
        ("redis://[::1]:7000/1", "redis://localhost:7000/1"),
    ],
)
def test_it_knows_one_server_by_all_its_spellings(one: str, same: str) -> None:
    assert RedisAddress.parse(one) == RedisAddress.parse(same)


@pytest.mark.parametrize(
    "other",
    [
        "redis://cache:6380/0",
        "redis://cache:6379/1",
        "redis://cache2:6379/0",
        "redis://cache:port/0",
        "unix:///cache",
        "amqp://cache:6379/0",
        "",
    ],
)
def test_it_tells_servers_apart(other: str) -> None:
    assert RedisAddress.parse(other) != RedisAddress.parse("redis://cache:6379/0")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (("cache", 6380), "redis://cache:6380/0"),
        ({"host": "cache", "port": 6380, "db": 2, "password": "secret"}, "redis://cache:6380/2"),
        ({"address": "redis://cache:6380/2"}, "redis://cache:6380/2"),
        ({"path": "/run/redis.sock"}, "unix:///run/redis.sock"),
    ],
)
def test_it_reads_a_layers_host_in_each_form(host: object, url: str) -> None:
    assert RedisAddress.of_layer_host(host) == RedisAddress.parse(url)


def test_it_compares_sentinels_with_their_master() -> None:
    broker = RedisAddress.parse("sentinel://b:26379;sentinel://a", {"master_name": "main"})
    layer = {"sentinels": [("a", 26379), ("b", 26379)], "master_name": "main"}
    assert broker == RedisAddress.of_layer_host(layer)
    assert broker != RedisAddress.of_layer_host(layer | {"master_name": "other"})


def test_it_ends_manage_py_check_with_an_error_for_another_broker(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "from chatsite.settings import *\nCELERY_BROKER_URL = 'redis://:secret@elsewhere:7000/2'\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "elsewhere", "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "generation.E002" in done.stderr
    assert "the Celery broker is redis://elsewhere:7000/2" in done.stderr
    assert "secret" not in done.stderr
