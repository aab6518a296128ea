"""What two optional settings do: clearing what old jobs were asked, and cancelling what nobody watches."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model

from generation import instants, queue, retention, watching
from generation.delivery import stream
from generation.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


def submitted() -> Job:
    user = get_user_model().objects.create_user(f"person-{uuid4().hex[:8]}")
    return queue.submit(user, [{"role": "user", "content": "a question"}])


def test_it_clears_the_messages_of_old_jobs_and_keeps_their_replies(settings: Any) -> None:
    settings.GENERATION_RETENTION_DAYS = 3
    old, young, waiting = submitted(), submitted(), submitted()
    for job, days in ((old, 4), (young, 2)):
        Job.objects.filter(pk=job.pk).update(
            state=Job.State.FINISHED, text="a reply", ended_at=instants.now() - timedelta(days=days)
        )
    assert retention.clear_old_messages() == 1
    old.refresh_from_db()
    assert (old.messages, old.text) == ([], "a reply")
    for job in (young, waiting):
        job.refresh_from_db()
        assert job.messages


def test_it_keeps_messages_for_ever_where_no_time_is_set(settings: Any) -> None:
    settings.GENERATION_RETENTION_DAYS = None
    job = submitted()
    Job.objects.update(state=Job.State.FINISHED, ended_at=instants.now() - timedelta(days=4000))
    assert retention.clear_old_messages() == 0
    job.refresh_from_db()
    assert job.messages


def test_it_cancels_a_job_whose_last_reader_left(settings: Any) -> None:
    """gradio-app/gradio#8708: a closed tab kept its slot for ever. Only where an operator wants it, it does not."""
    settings.GENERATION_CANCEL_ON_DISCONNECT_SECONDS = 30.0
    left, watched, never_watched = submitted(), submitted(), submitted()
    asyncio.run(watching.note([left.pk, watched.pk]))
    client = stream.sync_client()
    client.zincrby(watching.WATCHED_KEY, -31, str(left.pk))
    assert watching.cancel_abandoned() == 1
    states = {job.pk: job.state for job in Job.objects.all()}
    assert states == {left.pk: "cancelled", watched.pk: "queued", never_watched.pk: "queued"}
    assert client.zscore(watching.WATCHED_KEY, str(left.pk)) is None
    assert client.ttl(watching.WATCHED_KEY) > 0


def test_leaving_never_stops_a_job_by_default(settings: Any) -> None:
    settings.GENERATION_CANCEL_ON_DISCONNECT_SECONDS = None
    job = submitted()
    asyncio.run(watching.note([job.pk]))
    assert stream.sync_client().zscore(watching.WATCHED_KEY, str(job.pk)) is None
    assert watching.cancel_abandoned() == 0
