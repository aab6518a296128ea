"""What people are told of the models they choose from: whether each can answer, and how long its line is."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from generation import estimates, offers, queue
from generation.models import Job, Queue
from tests.generation.rows import make_job, make_worker

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("two_models"),
]


@pytest.fixture
def two_models() -> Any:
    with override_settings(
        GENERATION_MODELS="mock=mock: big=mock:?queue=big&context=99", GENERATION_DEFAULT_MODEL="big"
    ):
        yield


def entry(name: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "error": "", **fields}


def offered(name: str) -> dict[str, Any]:
    return next(offer for offer in offers.look() if offer["name"] == name)


def test_models_come_in_the_order_of_the_setting_and_one_is_the_default() -> None:
    assert [(offer["name"], offer["default"]) for offer in offers.look()] == [("mock", False), ("big", True)]


@pytest.mark.parametrize(
    ("states", "fields", "state"),
    [
        ([], {}, "no_worker"),
        (["ready"], {}, "ready"),
        (["loading"], {}, "loading"),
        (["failed"], {}, "failed"),
        (["loading", "ready"], {}, "ready"),
        (["failed", "ready"], {}, "ready"),
        (["ready"], {"draining": True}, "no_worker"),
        (["ready"], {"last_seen_at": timezone.now() - timedelta(hours=1)}, "no_worker"),
    ],
)
def test_it_says_whether_a_model_can_answer(states: list[str], fields: dict[str, Any], state: str) -> None:
    for number, each in enumerate(states):
        make_worker(hostname=f"celery@{number}", models=[entry("mock", each)], **fields)
    assert offered("mock")["state"] == state
    assert offered("big")["state"] == "no_worker"


def test_the_line_is_that_of_the_models_queue() -> None:
    make_worker()
    for place in (1, 2, 3):
        make_job(place=place)
    Queue.objects.create(name="big", paused=True)
    assert (offered("mock")["waiting"], offered("mock")["paused"]) == (3, False)
    assert (offered("big")["waiting"], offered("big")["paused"]) == (0, True)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """Each process looks once a second, and another test's line may be what it saw."""
    estimates._known.clear()


def test_nobody_waits_for_a_free_place() -> None:
    worker = make_worker(slots=1)
    assert offered("mock")["eta_seconds"] == 0
    make_job(Job.State.RUNNING, worker=worker)
    assert offered("mock")["eta_seconds"] is None


def test_the_wait_is_that_of_the_place_behind_the_last() -> None:
    worker, now = make_worker(slots=1), timezone.now()
    for place in range(5):
        begun = now - timedelta(seconds=60)
        make_job(Job.State.FINISHED, place=place, started_at=begun, ended_at=begun + timedelta(seconds=40))
    make_job(Job.State.RUNNING, worker=worker, place=6)
    make_job(place=7)
    told = offered("mock")["eta_seconds"]
    assert told is not None and 70 <= told <= 80


def test_the_context_is_the_smallest_of_the_workers_that_have_the_model() -> None:
    assert (offered("mock")["context"], offered("big")["context"]) == (None, 99)
    make_worker(models=[entry("mock", "ready", context=512)])
    make_worker(models=[entry("mock", "ready", context=256)])
    make_worker(models=[entry("mock", "ready")])  # of an older version
    assert offered("mock")["context"] == 256


def test_a_paused_queue_is_told_as_soon_as_it_is_looked_at_again() -> None:
    make_job()
    queue.pause("gpu")
    assert offered("mock")["paused"] is True
