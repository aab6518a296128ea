"""The health pages: what makes the site ready, what makes it red, and what it says then."""

import json
import os
import socket
import subprocess
import sys
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from generation import conf
from generation.delivery.stream import redis_id, sync_client
from generation.models import Job, Queue
from tests.generation.rows import make_job, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_model")]


def ready(client: Client) -> tuple[int, list[str]]:
    response = client.get("/health/ready")
    body = response.json()
    assert body["ready"] is (response.status_code == 200)
    return response.status_code, body["reasons"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_is_alive_without_a_session_or_a_worker(client: Client) -> None:
    assert client.get("/health/live").status_code == 200


def test_it_is_ready_when_a_live_worker_has_every_model(client: Client) -> None:
    make_worker(redis_id=redis_id(sync_client()))
    assert ready(client) == (200, [])


def test_it_is_never_cached(client: Client) -> None:
    assert "no-store" in client.get("/health/ready")["Cache-Control"]


def test_it_is_red_without_a_worker_and_names_the_queue(client: Client) -> None:
    assert ready(client) == (503, ["no worker is running for queue gpu"])


def test_it_is_red_when_the_only_worker_fell_silent(client: Client) -> None:
    make_worker(last_seen_at=timezone.now() - timedelta(seconds=conf.lease_seconds() + 5))
    assert ready(client) == (503, ["no worker is running for queue gpu"])


def test_it_is_red_when_the_only_worker_stopped(client: Client) -> None:
    make_worker(stopped_at=timezone.now())
    assert ready(client) == (503, ["no worker is running for queue gpu"])


def test_it_is_red_while_the_only_worker_drains(client: Client) -> None:
    make_worker(draining=True)
    assert ready(client) == (503, ["every worker of queue gpu is draining"])


def test_it_says_that_a_model_is_loading(client: Client) -> None:
    make_worker(models=[{"name": "mock", "state": "loading", "error": ""}])
    assert ready(client) == (503, ["model mock is loading on worker celery@one on one"])


def test_it_says_why_a_model_failed_to_load(client: Client) -> None:
    make_worker(models=[{"name": "mock", "state": "failed", "error": "no such folder"}])
    assert ready(client) == (503, ["model mock failed to load on worker celery@one on one: no such folder"])


def usable(client: Client) -> bool:
    return bool(client.get("/health/ready").json()["usable"])


BROKEN = {"name": "broken", "state": "failed", "error": "no such file"}


def test_it_is_red_but_usable_while_another_model_answers(client: Client, settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: broken=mock:"
    worker = make_worker(models=[{"name": "mock", "state": "ready", "error": ""}, BROKEN])
    assert ready(client) == (503, ["model broken failed to load on worker celery@one on one: no such file"])
    assert usable(client)
    worker.models = [{"name": "mock", "state": "loading", "error": ""}, BROKEN]
    worker.save()
    assert not usable(client)


def test_it_is_red_but_usable_while_the_worker_of_a_broken_model_is_between_two_starts(
    client: Client, settings: Any
) -> None:
    settings.GENERATION_MODELS = "mock=mock: broken=mock:?queue=large"
    make_worker()
    make_worker(hostname="celery@two", host="two", queue="large", models=[BROKEN], stopped_at=timezone.now())
    assert ready(client) == (
        503,
        [
            "model broken failed to load on worker celery@two on two: no such file",
            "no worker is running for queue large",
        ],
    )
    assert usable(client)


def test_it_is_not_usable_when_the_only_model_can_not_be_loaded(client: Client, settings: Any) -> None:
    settings.GENERATION_MODELS = "broken=mock:"
    make_worker(models=[BROKEN], stopped_at=timezone.now())
    status, reasons = ready(client)
    assert status == 503
    assert "model broken failed to load on worker celery@one on one: no such file" in reasons
    assert not usable(client)


def test_it_says_that_jobs_wait_for_a_model_that_nobody_has(client: Client) -> None:
    make_worker()
    make_job(model="removed")
    assert ready(client) == (503, ["1 job waits for model removed of queue gpu, which nobody has"])
    make_job(model="removed", place=2)
    assert ready(client)[1] == ["2 jobs wait for model removed of queue gpu, which nobody has"]
    assert usable(client)
    make_worker(hostname="celery@two", models=[{"name": "removed", "state": "loading", "error": ""}])
    assert ready(client) == (200, [])


def test_it_is_ready_when_one_of_two_workers_has_the_model(client: Client) -> None:
    make_worker(models=[{"name": "mock", "state": "failed", "error": "out of memory"}])
    make_worker(hostname="celery@two", host="two")
    assert ready(client) == (200, [])


def test_it_wants_every_model_on_a_worker_of_its_own_queue(client: Client, settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: big=mock:?queue=large other=mock:"
    make_worker()
    assert ready(client) == (
        503,
        ["no worker of queue gpu has model other", "no worker is running for queue large"],
    )


def test_it_names_a_worker_that_uses_another_redis(client: Client) -> None:
    make_worker(redis_id=redis_id(sync_client()))
    make_worker(hostname="celery@two", host="two", redis_id=str(uuid.uuid4()))
    assert ready(client) == (503, ["worker celery@two on two uses another Redis than this web process"])


def test_it_is_red_without_redis(client: Client, settings: Any) -> None:
    make_worker()
    settings.REDIS_URL = f"redis://:secret@127.0.0.1:{free_port()}/0"
    status, [reason] = ready(client)
    assert status == 503
    assert reason.startswith("Redis can't be reached")
    assert "secret" not in reason


def test_it_is_red_without_a_database_and_still_alive() -> None:
    program = (
        "import django, json; django.setup()\n"
        "from django.test import Client\n"
        "pages = {page: Client().get('/health/' + page) for page in ('live', 'ready', 'load')}\n"
        "print(json.dumps({page: [answer.status_code, answer.json()] for page, answer in pages.items()}))\n"
    )
    url = f"postgres://nobody:secret@127.0.0.1:{free_port()}/none"
    env = os.environ | {
        "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "chatsite.settings", "ALLOWED_HOSTS": "testserver"
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    pages = json.loads(done.stdout.splitlines()[-1])
    assert pages["live"][0] == 200
    assert pages["load"][0] == 503
    status, body = pages["ready"]
    assert status == 503
    assert any(reason.startswith("the database can't be reached") for reason in body["reasons"])
    assert "secret" not in done.stdout


def test_it_tells_the_load_of_queues_and_workers(client: Client) -> None:
    worker = make_worker(busy=1)
    make_worker(draining=True, hostname="celery@two", slots=2)
    make_worker(hostname="celery@gone", stopped_at=timezone.now())
    make_job(Job.State.RUNNING)
    make_job(place=2)
    make_job(place=3)
    make_job(Job.State.FINISHED)
    Queue.objects.filter(pk="gpu").update(max_size=7, paused=True)
    body = client.get("/health/load").json()
    assert body["queues"] == {"gpu": {"running": 1, "waiting": 2, "max_running": 4, "max_waiting": 7, "paused": True}}
    assert len(body["workers"]) == 2
    assert body["workers"][str(worker.pk)] == {
        "queue": "gpu",
        "slots": 4,
        "busy": 1,
        "draining": False,
        "models": {"mock": "ready"},
    }


def test_it_tells_the_load_of_a_queue_that_was_never_used(client: Client, settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock:?queue=fresh"
    assert client.get("/health/load").json()["queues"]["fresh"]["waiting"] == 0
