"""`/metrics`: the figures, in a form that Prometheus reads."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from generation.metrics import render
from generation.models import Job, Queue
from generation.overview import QueueLoad
from tests.generation.rows import make_job, make_worker

SAMPLE = re.compile(r'[a-z_]+\{[a-z]+="(?:[^"\\\n]|\\.)*"(?:,[a-z]+="[^"]*")*\} [0-9.]+')


@pytest.mark.django_db
def test_it_counts_jobs_and_slots_by_queue(client: Client, settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock:"
    make_worker(busy=3)
    make_worker(hostname="celery@two", draining=True)
    for place in range(2):
        make_job(place=place)
    make_job(Job.State.RUNNING)
    make_job(Job.State.FAILED)
    Queue.objects.update(paused=True)
    response = client.get("/metrics")
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = response.content.decode().splitlines()
    for line in (
        'generation_jobs{queue="gpu",state="queued"} 2',
        'generation_jobs{queue="gpu",state="running"} 1',
        'generation_workers{queue="gpu"} 2',
        'generation_slots{queue="gpu"} 4',
        'generation_slots_busy{queue="gpu"} 3',
        'generation_queue_paused{queue="gpu"} 1',
    ):
        assert line in lines


@pytest.mark.django_db
def test_it_costs_the_same_for_any_number_of_jobs(client: Client) -> None:
    counts = []
    for number in (1, 30):
        for place in range(number):
            make_job(place=place)
        with CaptureQueriesContext(connection) as queries:
            client.get("/metrics")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_it_escapes_whatever_a_queue_is_called() -> None:
    name = 'a"b\\c\nd'
    load = QueueLoad(name, False, running=0, waiting=0, max_running=0, max_waiting=1, num_workers=0, busy=0)
    samples = [line for line in render([load]).splitlines() if not line.startswith("#")]
    assert samples
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert r'queue="a\"b\\c\nd"' in samples[0]
