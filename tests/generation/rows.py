"""Rows for tests that look at rows: jobs in any state and workers in any condition, written directly."""

import uuid
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from generation.models import Job, Queue, Worker
from tests.generation.asking import operator


def make_worker(**fields: Any) -> Worker:
    now = timezone.now()
    known: dict[str, Any] = {
        "queue": "gpu",
        "hostname": "celery@one",
        "host": "one",
        "boot_id": "boot",
        "pid_namespace": "pid:[1]",
        "pid": 4321,
        "pid_started": 1,
        "models": [{"name": "mock", "state": "ready", "error": ""}],
        "slots": 4,
        "started_at": now,
        "last_seen_at": now,
    }
    return Worker.objects.create(**(known | fields))


def make_job(state: Job.State = Job.State.QUEUED, *, place: int = 1, person: str = "ada", **fields: Any) -> Job:
    """A job whose order in line is `place`."""
    now = timezone.now()
    user, _ = get_user_model().objects.get_or_create(username=person)
    queue, _ = Queue.objects.get_or_create(name=fields.pop("queue", "gpu"))
    known: dict[str, Any] = {
        "user": user,
        "queue": queue,
        "model": "mock",
        "messages": [{"role": "user", "content": "one two three"}],
        "state": state,
        "arrival": place,
        "order_key": place,
        "created_at": now,
        "queued_at": now,
        "task_id": str(uuid.uuid4()),
    }
    if state != Job.State.QUEUED:
        known["started_at"] = known["first_started_at"] = now
        known["epoch"] = 1
    if state in Job.FINAL:
        known["ended_at"] = now
    return Job.objects.create(**(known | fields))


def running_job(**fields: Any) -> Job:
    return make_job(Job.State.RUNNING, worker=make_worker(), attempt=1, **fields)


def staff_with(*codenames: str) -> Client:
    """A browser of somebody who may open the admin and has these permissions."""
    user = operator()
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client
