"""What a running job does when the database breaks off, and with what another version left."""

import time
from typing import cast
from uuid import UUID

import pytest
from django.db import connection, transaction

from generation import running
from generation.delivery import stream
from generation.delivery.rows import job_rows
from generation.engine import Event, EventType, ModelSpec, load_engine, parse_models
from generation.models import Job
from generation.running import Claim
from tests.generation.rows import running_job
from tests.generation.token_writers import claimed_again, numbers, started_workers
from tests.site import PATIENCE_SECONDS


def _wait_until_the_server_ended(pid: int) -> None:
    observer = connection.copy()
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with observer.cursor() as cursor:
            while True:
                cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid])
                if cursor.fetchone() is None:
                    return
                assert time.monotonic() < deadline
    finally:
        observer.close()


@pytest.mark.django_db(transaction=True)
def test_it_writes_a_change_again_whose_transaction_the_server_ended() -> None:
    """A worker that stood still in mid-transaction failed its job instead of writing its end."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite ends no transaction by itself")
    pids = []

    def change() -> str:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.append(cursor.fetchone()[0])
            if len(pids) == 1:
                cursor.execute("SET idle_in_transaction_session_timeout = '50ms'")
                _wait_until_the_server_ended(pids[0])
            cursor.execute("SELECT 1")
        return "done"

    assert running.with_database(change) == "done"
    assert len(set(pids)) == 2


@pytest.mark.django_db(transaction=True)
def test_it_ends_from_the_marker_of_a_newer_version_that_counts_more() -> None:
    job = running_job()
    with started_workers() as start:
        writer = start()
        output = writer.open(job)
        writer.write(output, 1, 3)
        usage = {"prompt_tokens": 2, "completion_tokens": 3, "cached_tokens": 0, "draft_tokens": 9}
        marker = {"type": "finished", "seq": 4, "reason": "length", "usage": usage, "timings": {}, "tone": "plain"}
        writer.writer.end(output, marker)
        writer.writer.release(output)
        assert output.flushed.wait(PATIENCE_SECONDS)
        running.run(Claim(claimed_again(job)), load_engine(ModelSpec("mock", "mock:"), slots=1), start().writer)
    job.refresh_from_db()
    assert (job.state, job.finish_reason, job.text) == (Job.State.FINISHED, "length", numbers(1, 3))
    assert (job.completion_tokens, job.last_seq) == (3, 4)


@pytest.mark.django_db(transaction=True)
def test_it_leaves_out_the_oldest_turns_and_says_how_many_messages_they_were() -> None:
    """Conversations that had grown too long were refused for good (lmstudio-ai/lmstudio-bug-tracker#2339)."""
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "one two three four five six"},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": "alpha beta gamma"},
    ]
    job = running_job(messages=messages, params={"max_new_tokens": 4, "seed": 1})
    (spec,) = parse_models("mock=mock:?rate=1000&context=16")
    with started_workers() as start:
        writer = start().writer

        def take(events: list[Event]) -> None:
            for event in events:
                if event.type is EventType.TOKEN:
                    writer.put(*cast(tuple[UUID, int], event.identifier), event.ids, event.text)
            writer.wake()

        engine = load_engine(spec, slots=1, on_events=take).start()
        running.run(Claim(job), engine, writer)
        engine.close()
    job.refresh_from_db()
    assert (job.state, job.text) == (Job.State.FINISHED, "alpha beta gamma alpha")
    assert (job.prompt_tokens, job.dropped_messages) == (5, 2)
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "cached_tokens": 0, "dropped_messages": 2}
    assert job_rows([job.pk])[job.pk].end_frame()["usage"] == usage
    marker = stream.read_entries(stream.sync_client(), job.pk)[-1].end
    assert marker is not None and marker["usage"] == usage
    # A claim that finds this marker and a row without it writes the same.
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING, dropped_messages=0)
    with started_workers() as start:
        running.run(Claim(claimed_again(job)), load_engine(spec, slots=1), start().writer)
    job.refresh_from_db()
    assert (job.state, job.dropped_messages) == (Job.State.FINISHED, 2)
