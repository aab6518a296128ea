"""People, sessions, conversations and jobs written directly, many at once. For a process that is set up for Django."""

import uuid
from datetime import timedelta
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.utils import timezone

from chatsite.chat.models import Conversation, Message, ReplyJob
from generation.models import Job, Queue, Worker

BATCH = 2000
PROMPT = "How many people can wait in one line before somebody has to wait for too long? " * 3


def people(number: int) -> list[Any]:
    model = get_user_model()
    names = (f"person-{uuid.uuid4().hex}" for _ in range(number))
    return model.objects.bulk_create([model(username=name, password="!") for name in names], BATCH)


def cookies(users: list[Any]) -> list[str]:
    """A session for each."""
    made = []
    for user in users:
        session = import_module(settings.SESSION_ENGINE).SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        made.append(f"{settings.SESSION_COOKIE_NAME}={session.session_key}")
    return made


def worker(models: list[str]) -> Worker:
    """One of another machine, whose lease holds for an hour."""
    now = timezone.now()
    return Worker.objects.create(
        queue="gpu",
        hostname="gpu@elsewhere",
        host="elsewhere",
        boot_id="elsewhere",
        pid_namespace="elsewhere",
        pid=1,
        pid_started=1,
        slots=1000,
        models=[{"name": name, "state": "ready", "error": ""} for name in models],
        started_at=now,
        last_seen_at=now + timedelta(hours=1),
    )


def jobs(users: list[Any], number: int, *, models: list[str], runs_on: Worker | None = None) -> list[Job]:
    """So many jobs of these people in turn, waiting in line or running; they came two minutes ago."""
    queue, _ = Queue.objects.get_or_create(name="gpu")
    at = timezone.now() - timedelta(minutes=2)
    first = queue.virtual_time + 1
    running: dict[str, Any] = {"state": Job.State.RUNNING, "epoch": 1, "attempt": 1, "worker": runs_on}
    running |= {"started_at": at, "first_started_at": at}
    made = Job.objects.bulk_create(
        [
            Job(
                user=users[index % len(users)],
                queue=queue,
                model=models[index % len(models)],
                messages=[{"role": "user", "content": PROMPT}],
                params={"max_new_tokens": 64, "seed": index},
                client_id=uuid.uuid4(),
                arrival=first + index,
                order_key=first + index,
                task_id=str(uuid.uuid4()),
                created_at=at,
                queued_at=at,
                **(running if runs_on else {}),
            )
            for index in range(number)
        ],
        BATCH,
    )
    Queue.objects.filter(pk=queue.pk).update(virtual_time=first + number - 1)
    return made


def conversations(made: list[Job]) -> list[Conversation]:
    """One for each job."""
    rooms = Conversation.objects.bulk_create([Conversation(user_id=job.user_id) for job in made], BATCH)
    asked = Message.objects.bulk_create([Message(conversation=room, role="user", text=PROMPT) for room in rooms], BATCH)
    replies = Message.objects.bulk_create(
        [Message(conversation=room, role="assistant", parent=above) for room, above in zip(rooms, asked, strict=True)],
        BATCH,
    )
    parts = [ReplyJob(message=reply, job=job) for reply, job in zip(replies, made, strict=True)]
    ReplyJob.objects.bulk_create(parts, BATCH)
    return rooms
