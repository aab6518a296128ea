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


def note(*jobs: Job, stays: bool = True) -> None:
    asyncio.run(watching.note([job.pk for job in jobs], stays=stays))


def let_pass(seconds: float) -> None:
    """As if all notes were so much older."""
    client = stream.sync_client()
    for job_id, noted in client.hgetall(watching.WATCHED_KEY).items():
        name, _, at = noted.decode().partition(" ")
        client.hset(watching.WATCHED_KEY, job_id, f"{name} {float(at) - seconds}")
    for name, at in client.hgetall(watching.WATCHERS_KEY).items():
        client.hset(watching.WATCHERS_KEY, name, float(at) - seconds)


@pytest.fixture
def grace(settings: Any) -> float:
    stream.sync_client().delete(watching.WATCHED_KEY, watching.WATCHERS_KEY)
    settings.GENERATION_CANCEL_ON_DISCONNECT_SECONDS = 30.0
    return 30.0


def test_it_cancels_a_job_whose_last_reader_left(grace: float) -> None:
    """gradio-app/gradio#8708: a closed tab kept its slot for ever. Only where an operator wants it, it does not."""
    left, watched, never_watched = submitted(), submitted(), submitted()
    note(left, watched)
    let_pass(grace + 1)
    note(watched)
    assert watching.cancel_abandoned() == 1
    states = {job.pk: job.state for job in Job.objects.all()}
    assert states == {left.pk: "cancelled", watched.pk: "queued", never_watched.pk: "queued"}
    client = stream.sync_client()
    assert client.hkeys(watching.WATCHED_KEY) == [str(watched.pk).encode()]
    assert client.ttl(watching.WATCHED_KEY) > 0 and client.ttl(watching.WATCHERS_KEY) > 0


def test_nobody_has_left_while_nothing_could_be_noted(grace: float) -> None:
    """Redis was away for longer than the grace time, and every reply that was being read was cancelled."""
    job = submitted()
    note(job)
    let_pass(grace + 1)
    assert watching.cancel_abandoned() == 0
    note(job)
    assert watching.cancel_abandoned() == 0


@pytest.mark.parametrize("stays", [True, False], ids=["died", "has nobody else"])
def test_it_cancels_what_was_read_in_a_process_that_notes_no_more(
    grace: float, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted()
    note(job, stays=stays)
    let_pass(max(grace, watching.SILENT_SECONDS) + 1)
    with monkeypatch.context() as patch:
        patch.setattr(watching, "_process", "another")
        note()
    assert watching.cancel_abandoned() == 1


def test_leaving_never_stops_a_job_by_default(settings: Any) -> None:
    settings.GENERATION_CANCEL_ON_DISCONNECT_SECONDS = None
    job = submitted()
    note(job)
    assert stream.sync_client().hget(watching.WATCHED_KEY, str(job.pk)) is None
    assert watching.cancel_abandoned() == 0
