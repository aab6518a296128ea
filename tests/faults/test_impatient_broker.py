"""A broker that soon delivers again, a site that cancels what nobody reads: each prompt runs once, or stops once."""

import threading
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest
import redis

from generation import watching
from generation.delivery import stream
from tests.chat.sockets import people, rows, wait_for_rows
from tests.faults.conftest import ENVIRONMENT
from tests.faults.outages import frozen_redis
from tests.faults.replies import check_whole
from tests.faults.test_cancels import control_messages
from tests.generation.workers import wait_until
from tests.site import Site, frozen, running

CONCURRENCY = 10
GRACE_SECONDS = 1


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    environ = ENVIRONMENT | {
        "DJANGO_SETTINGS_MODULE": "tests.faults.impatient_settings",
        "GENERATION_CANCEL_ON_DISCONNECT_SECONDS": str(GRACE_SECONDS),
    }
    site = Site(tmp_path_factory.mktemp("impatient"), "--no-flower", "--concurrency", str(CONCURRENCY), **environ)
    with running(site):
        yield site


def test_a_job_that_runs_and_waits_for_longer_than_the_broker_waits_runs_once(site: Site) -> None:
    """Whatever ran or waited longer than the visibility timeout was delivered again and ran twice
    (celery/celery#5935, celery/celery#6229, celery/kombu#337).
    """
    words, text = 350, "tell-steps@0 once"
    before = site.lines.count
    (person,) = people(site)
    with person.socket() as socket:
        jobs = [socket.prompt(text, params={"max_new_tokens": words})["job"] for _ in range(CONCURRENCY + 1)]
        for job in jobs:
            check_whole(site, socket, job, text, words)
    assert max(frame["waited_seconds"] for job in jobs for frame in socket.of(job, "started")) > 2
    printed = site.lines.text_after(before).splitlines()
    steps = Counter(line.partition("step of ")[2] for line in printed if "step of " in line)
    with redis.Redis.from_url(site.up["redis_url"]) as client:
        for job in jobs:
            assert rows(site, "SELECT epoch, attempt FROM generation_job WHERE id = ?", UUID(job).hex) == [(1, 1)]
            assert [steps[f"{job} after {number} tokens"] for number in range(1, words)] == [1] * (words - 1)
            assert client.xlen(stream.tokens_key(UUID(job))) == words + 1
    received = Counter(line.split("[")[1].split("]")[0] for line in printed if "received" in line)
    assert received and set(received.values()) == {1}


def test_a_hundred_ends_stop_nothing_and_ten_readers_that_leave_stop_ten(site: Site) -> None:
    """Every normal end fired an abort, a reader that left fired none (ROCm/ATOM#1562, ROCm/ATOM#1589,
    FlashML-org/FreeToken#222).
    """
    (person,) = people(site)
    with control_messages(site) as heard, person.socket() as socket:
        jobs = [socket.prompt(f"reply {number}", params={"max_new_tokens": 2})["job"] for number in range(100)]
        for number, job in enumerate(jobs):
            check_whole(site, socket, job, f"reply {number}", 2)
    assert heard == []

    with control_messages(site) as heard:
        with person.socket() as socket:
            jobs = [socket.prompt("left alone", params={"max_new_tokens": 6000})["job"] for _ in range(10)]
            while not all(socket.of(job, "token") for job in jobs):
                socket.next()
        for job in jobs:
            ended = "SELECT state FROM generation_job WHERE id = ? AND state != 'running'"
            assert wait_for_rows(site, ended, UUID(job).hex) == [("cancelled",)]
    assert sorted(heard) == sorted(jobs)


def test_what_somebody_reads_is_not_stopped_by_an_outage(site: Site) -> None:
    (person,) = people(site)
    with person.socket() as socket:
        job = socket.prompt("somebody reads", params={"max_new_tokens": 900})["job"]
        with redis.Redis.from_url(site.up["redis_url"]) as client:
            wait_until(lambda: client.hexists(watching.WATCHED_KEY, job))
        with frozen(site.up["pids"]["web"]):
            with frozen_redis(site):
                threading.Event().wait(2 * GRACE_SECONDS)
            # Now the worker looks who has left, and the web process hasn't noted anybody yet.
            threading.Event().wait(2 * GRACE_SECONDS)
        check_whole(site, socket, job, "somebody reads", 900)
