"""The admin's lists over tens of thousands of jobs: as many queries as over a few, and none that reads them all."""

import time
import uuid
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from generation.models import Job
from tests.generation.rows import make_job, make_worker

pytestmark = pytest.mark.django_db

NUM_JOBS = 25_000
JOBS = "/admin/generation/job/"


def pages(job: Job, deep: int) -> list[str]:
    """What an operator opens: newest first, a page deep in the list, each filter and search, and the other lists."""
    since = urlencode({"created_at__gte": (timezone.now() - timedelta(days=1)).isoformat(sep=" ")})
    queries = ["", f"?p={deep}", "?state__exact=queued", "?state__exact=failed", "?model=mock"]
    queries += ["?queue__name__exact=gpu", f"?worker={job.worker_id}", f"?{since}", "?q=person7", "?q=nobody"]
    queries += [f"?q={str(job.pk)[:8]}", f"?q={job.pk}", f"?q={uuid.uuid4()}", "?o=1", "?o=-1"]
    return [*(JOBS + query for query in queries), "/admin/generation/queue/", "/admin/generation/worker/"]


def fill(number: int) -> None:
    """So many jobs by doubling what is there: mostly ended, a tenth waiting, with long prompts and replies."""
    columns = [field.column for field in Job._meta.fields if field.column not in ("id", "client_id", "arrival")]
    names = ", ".join(f'"{column}"' for column in columns)
    while (there := Job.objects.count()) < number:
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO generation_job (id, client_id, arrival, {names}) SELECT lower(hex(randomblob(16))), NULL,"
                f" arrival + {there}, {names} FROM generation_job LIMIT {number - there}"
            )


@dataclass(frozen=True, slots=True)
class Opened:
    queries: list[str]
    seconds: float


def opened(client: Client, addresses: list[str]) -> dict[str, Opened]:
    found = {}
    for address in addresses:
        began = time.perf_counter()
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        found[address] = Opened([query["sql"] for query in queries], time.perf_counter() - began)
    return found


def scans(sql: str) -> list[str]:
    """The steps of SQLite's plan that go through all jobs in no order that an index has."""
    if not sql.startswith("SELECT"):
        return []
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        steps = [str(row[3]) for row in cursor.fetchall()]
    return [step for step in steps if step.startswith("SCAN generation_job") and "USING" not in step]


def test_it_opens_every_list_of_very_many_jobs_without_going_through_them_all(admin_client: Client) -> None:
    """An operator's list took seconds or timed out once the table had grown (PostHog/posthog#20862,
    raft-tech/TANF-app#6116).
    """
    if connection.vendor != "sqlite":
        pytest.skip("rows are multiplied in SQLite's SQL")
    worker = make_worker()
    states = [Job.State.QUEUED] * 10 + [Job.State.FINISHED] * 80 + [Job.State.CANCELLED] * 9
    long = [{"role": "user", "content": "a long prompt " * 20}]
    for place, state in enumerate(states):
        make_job(state, place=place, person=f"person{place % 20}", messages=long, text="a reply " * 40)
    job = make_job(Job.State.RUNNING, worker=worker, person="ada")
    make_job(Job.State.FAILED, person="ada", created_at=timezone.now() - timedelta(days=3))
    few = opened(admin_client, pages(job, 2))
    fill(NUM_JOBS)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    many = opened(admin_client, pages(job, 200))
    print()
    for (address, now), before in zip(many.items(), few.values(), strict=True):
        print(f"{address:60} {len(now.queries)} queries, {before.seconds:.2f} s → {now.seconds:.2f} s")
    for (address, now), before in zip(many.items(), few.values(), strict=True):
        # One more where somebody on the page waits: the places in line.
        assert len(now.queries) <= len(before.queries) + 1, address
        # A model has no index of its own: whoever looks for a rare one waits for a scan.
        assert "model=" in address or not [sql for sql in now.queries if scans(sql)], address
