"""The forecast of the wait: what it says where all is known, and how far it is off where chance rules."""

import random
import time
from datetime import timedelta

import pytest

from generation import estimates, instants
from generation.delivery.rows import Place, SaidPlace
from generation.forecast import waits
from generation.models import Job
from tests.generation import line_simulation
from tests.generation.rows import make_job, make_worker

ALIKE = [10.0] * 8


def test_it_is_exact_where_replies_take_equally_long() -> None:
    assert waits(ALIKE, [4.0], 1, 3) == pytest.approx([6, 16, 26])
    assert waits(ALIKE, [4.0, 9.0], 2, 2) == pytest.approx([1, 6])


def test_it_says_that_a_free_slot_takes_the_first_at_once() -> None:
    assert waits(ALIKE, [], 2, 3)[:2] == [0, 0]


def test_it_says_nothing_where_nothing_is_known() -> None:
    assert waits(ALIKE[:4], [1.0], 1, 3) == []
    assert waits(ALIKE, [1.0], 0, 3) == []


def test_it_never_says_that_a_later_place_starts_sooner() -> None:
    chance = random.Random(3)
    for _ in range(200):
        durations = [chance.expovariate(0.1) for _ in range(chance.randint(5, 50))]
        elapsed = [chance.expovariate(0.05) for _ in range(chance.randint(0, 9))]
        found = waits(durations, elapsed, 8, 40)
        assert len(found) == 40 and found == sorted(found) and found[0] >= 0


@pytest.mark.parametrize("kind", line_simulation.KINDS, ids=lambda kind: kind.name)
def test_it_is_off_by_little_on_average_and_mostly_near(kind: line_simulation.Kind) -> None:
    """Where it is seldom near, or as a rule too long or too short, people would be right not to believe it."""
    pairs = line_simulation.simulate(kind, 4000 if kind.load < 1 else 1000, random.Random(7))
    bias, middle, near = line_simulation.errors(pairs)
    assert abs(bias) < 0.15 and middle < 0.35 and near > 0.5


def test_it_sends_a_forecast_again_only_when_more_than_time_has_changed() -> None:
    said = SaidPlace(Place(3, 5, eta_seconds=60), said_at=0.0)
    assert not SaidPlace(said.place, said_at=_ago(20)).is_news(Place(3, 5, eta_seconds=42))
    assert SaidPlace(said.place, said_at=_ago(20)).is_news(Place(3, 5, eta_seconds=80))
    assert SaidPlace(said.place, said_at=_ago(20)).is_news(Place(2, 5, eta_seconds=40))
    assert SaidPlace(said.place, said_at=_ago(20)).is_news(Place(3, 5))


def _ago(seconds: float) -> float:
    return time.monotonic() - seconds


@pytest.mark.django_db
def test_it_judges_by_the_latest_ends_the_running_ones_and_the_workers_slots() -> None:
    now = instants.now()
    worker = make_worker(slots=2, last_seen_at=now)
    for number in range(6):
        ended = now - timedelta(seconds=60 + number)
        make_job(state=Job.State.FINISHED, epoch=1, started_at=ended - timedelta(seconds=30), ended_at=ended)
    for _ in range(estimates.NUM_RECENT):
        make_job(state=Job.State.CANCELLED, epoch=0, started_at=None, ended_at=now)  # never ran, and tells nothing
    for seconds in (10, 20):
        make_job(state=Job.State.RUNNING, epoch=1, worker=worker, started_at=now - timedelta(seconds=seconds))
    estimates._known.clear()
    assert estimates.waits("gpu", 2) == pytest.approx([10, 20], abs=1)
    assert estimates.wait_at("gpu", 2) == pytest.approx(20, abs=1)
