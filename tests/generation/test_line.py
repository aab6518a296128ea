"""The order of the line: arrival, fair share, a bounded head start, and turns that are given back."""

import random
import threading
from typing import Any

import pytest

from generation import line, queue
from generation.models import Job, Priority, Worker
from tests.generation.asking import ask, claim, claim_all, in_threads
from tests.generation.rows import make_worker

pytestmark = pytest.mark.usefixtures("no_limits")


@pytest.fixture(autouse=True)
def two_models(settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: other=mock:"
    settings.GENERATION_DEFAULT_MODEL = "mock"


def names(jobs: list[Job]) -> list[str]:
    return [job.user.username for job in jobs]


@pytest.mark.django_db
def test_it_serves_people_with_one_prompt_each_in_the_order_of_arrival() -> None:
    asked = [ask(f"person{number}") for number in random.sample(range(1000), 30)]
    assert [job.pk for job in claim_all(make_worker())] == [job.pk for job in asked]


@pytest.mark.django_db
def test_it_lets_others_pass_a_person_who_filled_the_line_first() -> None:
    for _ in range(100):
        ask("crowd")
    for number in range(20):
        ask(f"person{number}")
    served = names(claim_all(make_worker()))
    # The crowd's second prompt lets TURN later arrivals pass, and the prompts before those people's were that many.
    assert served[:2] == ["crowd"] * 2
    assert served[2:22] == [f"person{number}" for number in range(20)]
    assert served[22:] == ["crowd"] * 98


@pytest.mark.django_db
def test_it_saves_up_no_turns_for_who_was_away() -> None:
    """Whoever comes back after others were busy for long stands where a new arrival stands."""
    worker = make_worker()
    ask("away")
    for _ in range(5):
        ask("busy")
    claim_all(worker)
    busy = ask("busy")
    for _ in range(3):
        ask("away")
    assert claim(worker) == busy
    assert names(claim_all(worker)) == ["away"] * 3


@pytest.mark.django_db
def test_it_gives_staff_a_head_start_over_a_bounded_number_of_earlier_arrivals() -> None:
    head_start = line.HEAD_START[Priority.STAFF] - line.HEAD_START[Priority.NORMAL]
    earlier = head_start + 50
    for number in range(earlier):
        ask(f"person{number}")
    staff = ask("staff", priority=Priority.STAFF)
    passed = earlier + 1 - line.position_of(staff)
    assert head_start / 2 < passed <= head_start


@pytest.mark.django_db
def test_it_starves_no_one_behind_staff_who_ask_without_end() -> None:
    worker = make_worker()
    waiting = ask("ada")
    head_start = line.HEAD_START[Priority.STAFF] - line.HEAD_START[Priority.NORMAL]
    for passed in range(head_start + 1):
        ask(f"staff{passed}", priority=Priority.STAFF)
        if claim(worker) == waiting:
            break
    else:
        pytest.fail(f"more than {head_start} staff prompts passed it")


@pytest.mark.django_db
def test_it_hands_a_cancelled_turn_to_its_owners_next_prompt() -> None:
    first = ask("ada")
    second, third = ask("ada"), ask("ada")
    for number in range(3):
        ask(f"person{number}")
    queue.cancel(first)
    assert list(line.positions("gpu"))[0] == second.pk
    third.refresh_from_db()
    second.refresh_from_db()
    assert line.start_of(third) == line.start_of(second) + line.TURN


@pytest.mark.django_db
def test_it_hands_no_turn_on_that_came_before_the_next_prompts_own_arrival() -> None:
    """Asking and cancelling again and again must not carry an old place over to a new prompt."""
    old = ask("ada")
    other = ask("bob")
    new = ask("ada")
    queue.cancel(old)
    assert list(line.positions("gpu")) == [other.pk, new.pk]


@pytest.mark.django_db
def test_it_moves_only_later_prompts_up_when_one_between_is_cancelled() -> None:
    first, second, third = (ask("ada") for _ in range(3))
    keys = first.order_key, second.order_key
    queue.cancel(second)
    first.refresh_from_db()
    third.refresh_from_db()
    assert (first.order_key, third.order_key) == keys


@pytest.mark.django_db
def test_it_keeps_the_owners_others_apart_when_a_prompt_moved_to_the_front_is_cancelled() -> None:
    first, moved, third = (ask("ada") for _ in range(3))
    queue.move_to_front(moved)
    queue.cancel(moved)
    third.refresh_from_db()
    assert line.start_of(third) == line.start_of(first) + line.TURN


@pytest.mark.django_db
@pytest.mark.parametrize("priority", Priority)
def test_it_moves_a_prompt_before_all_that_wait_and_all_that_come(priority: Priority) -> None:
    for number in range(5):
        ask(f"person{number}", priority=Priority.STAFF)
    moved = ask("ada", priority=priority)
    assert queue.move_to_front(moved)
    for number in range(5, 10):
        ask(f"person{number}", priority=Priority.STAFF)
    assert claim(make_worker()) == moved


@pytest.mark.django_db
def test_it_puts_the_last_one_moved_to_the_front_first() -> None:
    jobs = [ask("ada") for _ in range(4)]
    for job in jobs:
        queue.move_to_front(job)
    assert list(line.positions("gpu")) == [job.pk for job in reversed(jobs)]


@pytest.mark.django_db
def test_it_tells_positions_that_are_the_order_of_the_claims() -> None:
    for number in range(40):
        ask(f"person{number % 7}", priority=list(Priority)[number % 3])
    positions = line.positions("gpu")
    each = {job.pk: line.position_of(job) for job in Job.objects.all()}
    assert positions == each
    assert [job.pk for job in claim_all(make_worker())] == sorted(positions, key=positions.__getitem__)


@pytest.mark.django_db
def test_it_gives_a_worker_only_prompts_for_models_it_has_loaded() -> None:
    worker = make_worker()
    other, mine = ask("ada", model="other"), ask("bob")
    assert claim(worker) == mine
    assert claim(worker) is None
    assert claim(worker, models=["mock", "other"]) == other


@pytest.mark.django_db
def test_it_takes_the_first_of_several_loaded_models() -> None:
    asked = [ask(f"person{number}", model=random.choice(["mock", "other"])) for number in range(20)]
    worker = make_worker()
    assert [claim(worker, models=["other", "mock"]) for _ in asked] == asked


@pytest.mark.django_db(transaction=True)
def test_it_starts_nothing_after_pause_returned_however_many_claims_race_it() -> None:
    workers = [make_worker() for _ in range(4)]
    for number in range(60):
        ask(f"person{number}")
    running_at_pause: list[int] = []
    some_claimed = threading.Event()

    def act(index: int) -> None:
        if index == 4:
            some_claimed.wait()
            queue.pause("gpu")
            running_at_pause.append(Job.objects.filter(state=Job.State.RUNNING).count())
            return
        while claim(workers[index]) is not None:
            some_claimed.set()

    assert in_threads(5, act) == [None] * 5
    assert Job.objects.filter(state=Job.State.RUNNING).count() == running_at_pause[0]
    assert claim(workers[0]) is None
    queue.resume("gpu")
    if running_at_pause[0] < 60:
        assert claim(workers[0]) is not None


@pytest.mark.django_db(transaction=True)
def test_it_claims_each_prompt_once_when_workers_race() -> None:
    asked = {ask(f"person{number}").pk for number in range(40)}
    workers: list[Worker] = [make_worker() for _ in range(8)]
    claimed = in_threads(8, lambda index: claim_all(workers[index]))
    jobs = [job for found in claimed if isinstance(found, list) for job in found]
    assert len(jobs) == 40
    assert {job.pk for job in jobs} == asked
    assert {job.epoch for job in jobs} == {1}
