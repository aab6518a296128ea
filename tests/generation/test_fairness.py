"""The bound that `line.py` promises, whatever people do; `pytest -s` prints how long each kind of them waited."""

from collections import defaultdict
from itertools import pairwise
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from generation import line, queue
from generation.models import Job, Priority, Queue, Worker
from tests.generation.asking import ask, claim, claim_all
from tests.generation.rows import make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_model", "no_limits")]

KINDS = {
    # who asks: (how many such people, their priority, prompts at a time)
    "a newcomer's one prompt": (1_000_000, Priority.NORMAL, 1),
    "a regular's few prompts": (6, Priority.NORMAL, 2),
    "a crowd's hundred prompts": (1, Priority.NORMAL, 100),
    "staff's one prompt": (1_000_000, Priority.STAFF, 1),
    "a batch of ten prompts": (2, Priority.BATCH, 10),
}


class Watched:
    """A line in which every claim is checked against the bound of each job that it passed."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._allowed: dict[Any, int] = {}
        self._passed: dict[Any, int] = {}
        self._claims_at: dict[Any, int] = {}
        self._kinds: dict[Any, str] = {}
        self._num_claims = 0
        self._newest = 0
        self.running: list[Job] = []
        self.waits: dict[str, list[int]] = defaultdict(list)
        self.tightest = 0.0

    def ask(self, name: str, priority: Priority, kind: str = "") -> None:
        job = ask(name, priority=priority)
        assert job.arrival > self._newest
        self._newest = job.arrival
        head_start = max(line.HEAD_START.values()) - line.HEAD_START[priority]
        self._allowed[job.pk] = line.start_of(job) - job.arrival + head_start
        self._passed[job.pk] = 0
        self._claims_at[job.pk] = self._num_claims
        self._kinds[job.pk] = kind

    def claim(self) -> Job | None:
        job = claim(self._worker)
        if job is None:
            return None
        if job.epoch == 1:
            self._num_claims += 1
            self.waits[self._kinds[job.pk]].append(self._num_claims - self._claims_at[job.pk])
            for waiting in line.waiting("gpu").filter(arrival__lt=job.arrival).values_list("pk", flat=True):
                self._passed[waiting] += 1
                assert self._passed[waiting] <= self._allowed[waiting]
                self.tightest = max(self.tightest, self._passed[waiting] / self._allowed[waiting])
        self.running.append(job)
        return job

    def put_back(self, number: int) -> None:
        if self.running:
            job = self.running.pop(number % len(self.running))
            queue.put_back(job.pk, job.epoch, drained=True)

    def cancel(self, number: int) -> None:
        if waiting := list(line.waiting("gpu")):
            queue.cancel(waiting[number % len(waiting)])

    def claim_all(self) -> None:
        """The rest, which comes in the order that the positions told."""
        expected = list(line.positions("gpu"))
        assert [job.pk for job in iter(self.claim, None)] == expected


STEPS = strategies.lists(
    strategies.one_of(
        strategies.tuples(strategies.just("ask"), strategies.integers(0, 4), strategies.sampled_from(Priority)),
        strategies.tuples(strategies.just("ask"), strategies.integers(0, 1), strategies.just(Priority.NORMAL)),
        strategies.tuples(strategies.just("claim"), strategies.just(0), strategies.none()),
        strategies.tuples(strategies.just("cancel"), strategies.integers(0, 99), strategies.none()),
        strategies.tuples(strategies.just("put back"), strategies.integers(0, 99), strategies.none()),
    ),
    max_size=60,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_it_never_lets_more_later_prompts_pass_than_its_bound_allows(steps: list[tuple[str, int, Any]]) -> None:
    Job.objects.all().delete()
    watched = Watched(make_worker())
    for step, number, priority in steps:
        match step:
            case "ask":
                watched.ask(f"person{number}", priority)
            case "claim":
                watched.claim()
            case "put back":
                watched.put_back(number)
            case _:
                watched.cancel(number)
    watched.claim_all()


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=strategies.integers(0, 2**32))
def test_it_keeps_its_bound_on_a_crowded_day(seed: int) -> None:
    """More is asked than can be run; the line grows, and each kind of person waits as the bound lets them."""
    Job.objects.all().delete()
    chance = Random(seed)
    watched = Watched(make_worker())
    for _ in range(100):
        watched.ask("crowd", Priority.NORMAL, "a crowd's hundred prompts")
    others = [kind for kind in KINDS if "crowd" not in kind]
    for _ in range(120):
        for kind in chance.choices(others, weights=[8, 4, 1, 1], k=chance.randint(0, 2)):
            number, priority, at_once = KINDS[kind]
            name = f"{kind} {chance.randrange(number)}"
            for _ in range(at_once):
                watched.ask(name, priority, kind)
        if chance.random() < 0.05:
            watched.cancel(chance.randrange(1000))
        if chance.random() < 0.05:
            watched.put_back(chance.randrange(1000))
        watched.claim()
    watched.claim_all()
    print(f"\n{'claims until the start':28}{'prompts':>8}{'mean':>8}{'worst':>8}")
    for kind in KINDS:
        if waits := watched.waits[kind]:
            print(f"{kind:28}{len(waits):>8}{mean(waits):>8.1f}{max(waits):>8}")
    print(f"the most that passed anyone was {watched.tightest:.0%} of what the bound allows")
    assert max(watched.waits["a newcomer's one prompt"]) < mean(watched.waits["a crowd's hundred prompts"])


@given(num_people=strategies.integers(2, 6), num_prompts=strategies.integers(3, 8), chance=strategies.randoms())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_gives_each_of_k_people_every_kth_turn(num_people: int, num_prompts: int, chance: Random) -> None:
    """However their prompts came in: one after the other, or all of one person's before all of another's."""
    Job.objects.all().delete()
    names = [f"person{number}" for number in range(num_people)] * num_prompts
    if chance.random() < 0.7:
        chance.shuffle(names)
    else:
        names.sort()
    for name in names:
        ask(name)
    served = [job.user.username for job in claim_all(make_worker())]
    for name in set(names):
        turns = [number for number, other in enumerate(served) if other == name]
        assert [later - turn for turn, later in pairwise(turns)] == [num_people] * (num_prompts - 1)


def test_it_holds_nobody_up_for_a_persons_hundred_prompts() -> None:
    for _ in range(100):
        ask("crowd")
    one = ask("one")
    # The crowd's first came long before; its second, which is TURN later, came before this one too.
    assert line.position_of(one) <= 3
    worker = make_worker()
    served = [claim(worker) for _ in range(3)]
    assert one in served


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(later=strategies.lists(strategies.tuples(strategies.sampled_from(Priority), strategies.booleans()), max_size=9))
def test_it_starves_no_one_whoever_comes_later(later: list[tuple[Priority, bool]]) -> None:
    """Strangers and people with prompts in line come again and again, two for each that is started."""
    Job.objects.all().delete()
    victim = ask("victim", priority=Priority.BATCH)
    worker = make_worker()
    bound = max(line.HEAD_START.values()) - line.HEAD_START[Priority.BATCH]
    # Near the end of what the bound allows: as if so many strangers had passed already.
    Queue.objects.filter(pk="gpu").update(virtual_time=victim.arrival + bound - 20)
    coming = (later or [(Priority.STAFF, True)]) * 40
    for number, (priority, is_stranger) in enumerate(coming):
        for _ in range(2):
            ask(f"stranger{number}" if is_stranger else "regular", priority=priority)
        if claim(worker) == victim:
            return
    raise AssertionError(f"{len(coming)} later ones passed it")
