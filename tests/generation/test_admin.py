"""The admin: what operators see of jobs, queues and workers, what it costs, and what they may do."""

import re
import uuid
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from generation import conf
from generation.admin import read_only
from generation.models import Job, Queue
from tests.generation.rows import make_job, make_worker, staff_with

pytestmark = pytest.mark.django_db

JOBS = "/admin/generation/job/"
QUEUES = "/admin/generation/queue/"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def page_of(job: Job) -> str:
    return reverse("admin:generation_job_change", args=[job.pk])


def listed(client: Client, query: str = "") -> set[uuid.UUID]:
    response = client.get(JOBS + query)
    assert response.status_code == 200
    return {job.pk for job in response.context["cl"].result_list}


def column(client: Client, name: str, page: str = JOBS) -> list[str]:
    """The cells of one column, as text, top down."""
    html = client.get(page).content.decode()
    cells = re.findall(rf'<t[dh] class="field-{name}[^"]*">(.*?)</t[dh]>', html)
    return [unescape(re.sub("<.*?>", "", cell)) for cell in cells]


def test_it_shows_each_waiting_jobs_place_in_line(admin_client: Client) -> None:
    now = timezone.now()
    make_job(place=30, created_at=now)
    make_job(place=10, created_at=now - timedelta(minutes=1))
    make_job(place=20, created_at=now - timedelta(minutes=2))
    make_job(Job.State.FINISHED, created_at=now - timedelta(minutes=3))
    assert column(admin_client, "place") == ["3", "1", "2", "–"]


def test_it_shows_waits_tokens_and_the_speed_after_the_first_token(admin_client: Client) -> None:
    now = timezone.now()
    make_job(
        Job.State.FINISHED,
        created_at=now - timedelta(seconds=90),
        first_started_at=now - timedelta(seconds=15),
        prompt_tokens=1200,
        completion_tokens=31,
        timings={"queue": 75.0, "prefill": 1.0, "first_token": 3.0, "total": 15.0},
    )
    assert column(admin_client, "waited") == ["1 min 15 s"]
    assert column(admin_client, "tokens") == ["1,200 + 31"]
    assert column(admin_client, "speed") == ["2.5"]


def test_it_counts_no_tokens_of_an_earlier_worker_whose_time_it_does_not_know(admin_client: Client) -> None:
    now = timezone.now()
    make_job(
        Job.State.FINISHED,
        epoch=2,
        first_started_at=now - timedelta(seconds=20),
        ended_at=now,
        completion_tokens=100,
        timings={"first_token": 0.5, "total": 2.5, "tokens": 21},
    )
    assert column(admin_client, "speed") == ["10.0"]


def test_it_shows_how_long_a_job_has_waited_since_it_was_put_back_in_line(admin_client: Client) -> None:
    now = timezone.now()
    times = {"created_at": now - timedelta(hours=2), "queued_at": now - timedelta(minutes=3)}
    make_job(first_started_at=now - timedelta(hours=1), **times)
    make_job(person="requeued", **times)
    assert [wait.partition(" min")[0] for wait in column(admin_client, "waited")] == ["3", "3"]


@pytest.mark.parametrize("page", ["job", "queue", "worker"])
def test_it_lists_many_rows_in_as_many_queries_as_one(admin_client: Client, page: str) -> None:
    counts = []
    for number in (1, 49):
        for place in range(number):
            make_job(place=place, person=f"person{place}", worker=make_worker())
            make_job(Job.State.RUNNING, place=place, person=f"person{place}", worker=make_worker())
            if page == "queue":
                Queue.objects.create(name=f"{number}-{place}")
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(f"/admin/generation/{page}/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_it_never_counts_the_whole_table(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_only, "MAX_COUNTED", 3)
    for place in range(5):
        make_job(place=place)
    with CaptureQueriesContext(connection) as queries:
        response = admin_client.get(JOBS)
    assert response.context["cl"].paginator.count == 3
    counts = [query["sql"] for query in queries if "COUNT(*)" in query["sql"] and "generation_job" in query["sql"]]
    assert counts
    assert all("LIMIT 3" in sql for sql in counts)


def test_it_leaves_the_long_texts_out_of_the_list(admin_client: Client) -> None:
    make_job(Job.State.FAILED, text="a reply", error_traceback="a traceback")
    with CaptureQueriesContext(connection) as queries:
        admin_client.get(JOBS)
    assert not any('"text"' in query["sql"] or "error_traceback" in query["sql"] for query in queries)


def test_it_shows_prompts_and_replies_as_text(admin_client: Client) -> None:
    """Model text ran as HTML in the operator's tool (mher/flower#651)."""
    job = make_job(
        Job.State.FAILED,
        messages=[{"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE}],
        text=HOSTILE,
        error_message=HOSTILE,
        error_traceback=HOSTILE,
        params={"stop": [HOSTILE]},
        worker=make_worker(hostname=HOSTILE, models=[{"name": HOSTILE, "state": "failed", "error": HOSTILE}]),
    )
    for address in (
        JOBS,
        page_of(job),
        "/admin/generation/worker/",
        f"/admin/generation/worker/{job.worker_id}/change/",
    ):
        html = admin_client.get(address).content.decode()
        assert "<img src=x" not in html
        assert "alert(2)</script>" not in html
        assert "&lt;img src=x" in html


def test_it_cuts_long_prompts_in_the_list(admin_client: Client) -> None:
    make_job(messages=[{"role": "user", "content": "word " * 20_000}])
    [prompt] = column(admin_client, "prompt")
    assert prompt.startswith("word word")
    assert len(prompt) <= 80


def test_it_finds_a_job_by_person_and_by_any_of_its_ids(admin_client: Client) -> None:
    job = make_job(person="grace", client_id=uuid.uuid4())
    make_job(person="ada", place=2)
    for term in ("grace", str(job.pk), job.pk.hex, str(job.pk)[:8], str(job.client_id), job.task_id):
        assert listed(admin_client, f"?q={term}") == {job.pk}, term
    assert listed(admin_client, "?q=nobody") == set()


def test_it_filters_by_state_model_queue_worker_and_day(admin_client: Client) -> None:
    worker = make_worker()
    old = timezone.now() - timedelta(days=3)
    wanted = make_job(Job.State.RUNNING, queue="large", model="big", worker=worker)
    make_job(Job.State.FINISHED, created_at=old)
    yesterday = timezone.now() - timedelta(days=1)
    for query in (
        "state__exact=running",
        "model=big",
        "queue__name__exact=large",
        f"worker={worker.pk}",
        urlencode({"created_at__gte": yesterday.isoformat(sep=" ")}),
    ):
        assert listed(admin_client, f"?{query}") == {wanted.pk}, query
    assert listed(admin_client, "?worker=nonsense") == set()


def test_it_neither_adds_nor_edits_anything(admin_client: Client) -> None:
    job = make_job()
    worker = make_worker()
    for name in ("job", "queue", "worker"):
        assert admin_client.get(f"/admin/generation/{name}/add/").status_code == 403
    for address in (page_of(job), f"/admin/generation/worker/{worker.pk}/change/"):
        response = admin_client.get(address)
        assert response.status_code == 200
        assert 'name="_save"' not in response.content.decode()
        assert admin_client.post(address, {"state": "finished"}).status_code == 403
    job.refresh_from_db()
    assert job.state == Job.State.QUEUED


@pytest.mark.parametrize("state", [Job.State.QUEUED, Job.State.RUNNING])
def test_it_deletes_no_job_that_waits_or_runs_nor_its_person(admin_client: Client, state: Job.State) -> None:
    job = make_job(state)
    confirmed = {"post": "yes"}
    assert admin_client.post(f"/admin/generation/job/{job.pk}/delete/", confirmed).status_code == 403
    admin_client.post(f"/admin/auth/user/{job.user_id}/delete/", confirmed)
    admin_client.post(JOBS, {"action": "delete_selected", "_selected_action": [str(job.pk)]} | confirmed)
    assert Job.objects.filter(pk=job.pk).exists()


def test_it_deletes_a_job_that_has_ended(admin_client: Client) -> None:
    job = make_job(Job.State.FINISHED)
    admin_client.post(f"/admin/generation/job/{job.pk}/delete/", {"post": "yes"})
    assert not Job.objects.filter(pk=job.pk).exists()


def test_it_shows_tracebacks_to_superusers_only(admin_client: Client) -> None:
    job = make_job(Job.State.FAILED, error_message="It broke.", error_traceback="Traceback: secret path")
    assert "secret path" in admin_client.get(page_of(job)).content.decode()
    html = staff_with("view_job").get(page_of(job)).content.decode()
    assert "It broke." in html
    assert "secret path" not in html


def test_it_links_a_job_to_its_task_in_flower(admin_client: Client, settings: Any) -> None:
    job = make_job(Job.State.RUNNING)
    settings.GENERATION_FLOWER_URL = ""
    assert f"/task/{job.task_id}" not in admin_client.get(page_of(job)).content.decode()
    settings.GENERATION_FLOWER_URL = "http://127.0.0.1:5555/"
    assert f'href="http://127.0.0.1:5555/task/{job.task_id}"' in admin_client.get(page_of(job)).content.decode()


def test_it_tells_live_silent_draining_and_stopped_workers_apart(admin_client: Client) -> None:
    now = timezone.now()
    make_worker(hostname="a@live")
    make_worker(hostname="b@silent", last_seen_at=now - timedelta(seconds=conf.lease_seconds() + 60))
    make_worker(hostname="c@draining", draining=True)
    make_worker(hostname="d@stopped", stopped_at=now)
    response = admin_client.get("/admin/generation/worker/")
    model_admin = response.context["cl"].model_admin
    found = {worker.hostname: model_admin.status(worker) for worker in response.context["cl"].result_list}
    assert found == {"a@live": "live", "b@silent": "silent", "c@draining": "draining", "d@stopped": "stopped"}


def test_it_counts_what_waits_and_runs_in_each_queue(admin_client: Client) -> None:
    make_job()
    make_job(place=2)
    make_job(Job.State.RUNNING)
    make_job(Job.State.FINISHED)
    Queue.objects.create(name="idle", paused=True)
    rows = admin_client.get("/admin/generation/queue/").context["cl"].result_list
    assert {row.name: (row.waiting, row.running) for row in rows} == {"gpu": (2, 1), "idle": (0, 0)}


def test_it_says_in_words_whether_a_queue_is_paused_and_where_its_limits_are_from(
    admin_client: Client, settings: Any
) -> None:
    settings.GENERATION_MODELS, settings.GENERATION_MAX_QUEUE_SIZE = "mock=mock: large=mock:?queue=large", 1000
    Queue.objects.create(name="gpu", max_wait_seconds=90)
    Queue.objects.create(name="large", paused=True, max_size=5000)
    Queue.objects.create(name="old")
    cells = {name: column(admin_client, name, QUEUES) for name in ("status", "size_limit", "wait_limit")}
    assert cells["status"] == ["open", "paused", "no model here"]
    assert cells["size_limit"] == ["1,000 (setting)", "5,000", "1,000 (setting)"]
    assert cells["wait_limit"] == ["1 min 30 s", "1 h 0 min (setting)", "1 h 0 min (setting)"]
