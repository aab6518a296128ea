"""What operators change in the admin: each action says how many it did, and how many it couldn't and why."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from generation import line, queue
from generation.admin import steering
from generation.models import Job, Queue, Worker
from tests.generation.rows import make_job, make_worker, staff_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_model")]

State = Job.State
ACTIONS = [("job", "cancel"), ("job", "requeue"), ("job", "move_to_front")]
ACTIONS += [("queue", "pause"), ("queue", "resume"), ("worker", "drain"), ("worker", "undrain")]


def act(client: Client, action: str, *rows: Any) -> str:
    """Choose these rows and run the action; what the page says then."""
    address = f"/admin/generation/{rows[0]._meta.model_name}/"
    chosen = [str(row.pk) for row in rows]
    response = client.post(address, {"action": action, "_selected_action": chosen}, follow=True)
    return " ".join(map(str, response.context["messages"]))


def states(*jobs: Job) -> list[str]:
    for job in jobs:
        job.refresh_from_db()
    return [job.state for job in jobs]


def test_it_cancels_the_selected_jobs(admin_client: Client) -> None:
    jobs = make_job(), make_job(State.RUNNING, place=2, worker=make_worker()), make_job(State.FINISHED, place=3)
    assert act(admin_client, "cancel", *jobs) == "Jobs: 1 cancelled, 1 asked to stop, 1 had already ended."
    assert states(*jobs) == ["cancelled", "running", "finished"]
    assert jobs[1].cancel_requested_at is not None


def test_it_puts_failed_jobs_back_in_line_and_says_what_became_of_the_others(admin_client: Client) -> None:
    jobs = [make_job(state, place=place) for place, state in enumerate([State.FAILED, State.FAILED, State.FINISHED])]
    jobs.append(make_job(place=9))
    told = act(admin_client, "requeue", *jobs)
    assert told == "Jobs: 2 in line again, 1 not failed but finished, 1 not failed but queued."
    assert states(*jobs) == ["queued", "queued", "finished", "queued"]


def test_it_moves_jobs_to_the_front_in_the_order_they_had(admin_client: Client) -> None:
    jobs = [make_job(place=place, person=f"person{place}") for place in range(6)]
    running = make_job(State.RUNNING, place=9)
    told = act(admin_client, "move_to_front", jobs[5], jobs[3], running)
    assert told == "Jobs: 2 moved to the front, 1 not waiting but running."
    assert [job.place for job in map(with_place, [jobs[3], jobs[5], jobs[0]])] == [1, 2, 3]


def with_place(job: Job) -> Any:
    job.refresh_from_db()
    job.place = line.position_of(job)  # type: ignore[attr-defined]
    return job


def test_it_pauses_and_resumes_queues(admin_client: Client) -> None:
    open_queue, paused = Queue.objects.create(name="gpu"), Queue.objects.create(name="large", paused=True)
    assert act(admin_client, "pause", open_queue, paused) == "Queues: 1 paused, 1 paused already."
    assert Queue.objects.filter(paused=True).count() == 2
    assert act(admin_client, "resume", open_queue, paused) == "Queues: 2 resumed."
    assert not Queue.objects.filter(paused=True).exists()
    assert act(admin_client, "resume", open_queue) == "Queues: 1 not paused."


def test_it_drains_workers_and_ends_their_drain(admin_client: Client) -> None:
    worker, stopped = make_worker(), make_worker()
    Worker.objects.filter(pk=stopped.pk).update(stopped_at=stopped.last_seen_at)
    assert act(admin_client, "drain", worker, stopped) == "Workers: 1 draining, 1 stopped."
    job = make_job()
    assert queue.claim("gpu", ["mock"], worker, "task") is None
    assert act(admin_client, "drain", worker) == "Workers: 1 draining already."
    assert act(admin_client, "undrain", worker, stopped) == "Workers: 1 taking jobs again, 1 stopped."
    assert queue.claim("gpu", ["mock"], worker, "task") == job


def row_that_it_changes(name: str, action: str) -> Any:
    """A row that the action changes when somebody may act; each kind has another one beside it."""
    make_job()
    make_worker(hostname="celery@other")
    Queue.objects.filter(name="gpu").update(paused=action == "resume")
    match name:
        case "job":
            return make_job(State.FAILED if action == "requeue" else State.QUEUED, place=2)
        case "queue":
            return Queue.objects.get(name="gpu")
        case _:
            return make_worker(draining=action == "undrain")


def everything() -> list[Any]:
    fields = ("state", "order_key", "cancel_requested_at")
    return [
        *Job.objects.order_by("pk").values_list(*fields),
        *Queue.objects.values_list("paused", "max_size"),
        *Worker.objects.values_list("draining"),
    ]


@pytest.mark.parametrize(("name", "action"), ACTIONS)
def test_it_lets_nobody_steer_who_may_only_look(admin_client: Client, name: str, action: str) -> None:
    row = row_that_it_changes(name, action)
    client = staff_with("view_job", "view_queue", "view_worker")
    before = everything()
    assert client.get(f"/admin/generation/{name}/").status_code == 200
    act(client, action, row)
    assert everything() == before
    act(admin_client, action, row)
    assert everything() != before


@pytest.mark.parametrize(("name", "action"), ACTIONS)
def test_it_changes_nothing_for_a_link(admin_client: Client, name: str, action: str) -> None:
    row = row_that_it_changes(name, action)
    before = everything()
    admin_client.get(f"/admin/generation/{name}/", {"action": action, "_selected_action": str(row.pk), "post": "yes"})
    admin_client.get(f"/admin/generation/{name}/{row.pk}/change/", {"max_size": 1, "paused": "on"})
    assert everything() == before
    act(admin_client, action, row)
    assert everything() != before


def test_it_notes_who_steered_in_the_rows_history(admin_client: Client) -> None:
    row = Queue.objects.create(name="gpu")
    act(admin_client, "pause", row)
    act(admin_client, "pause", row)
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.get_username(), entry.get_change_message()) == ("gpu", "admin", "Paused.")


def test_it_takes_so_many_rows_at_once_and_says_that_some_are_left(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "MAX_AT_ONCE", 2)
    jobs = [make_job(place=place) for place in range(3)]
    told = act(admin_client, "cancel", *jobs)
    assert told.startswith("Jobs: 2 cancelled. No more than 2 are taken at once")
    assert sorted(states(*jobs)) == ["cancelled", "cancelled", "queued"]


def test_it_cancels_a_persons_whole_line_without_moving_any_job_up(admin_client: Client) -> None:
    """Each one cancelled hands its turn to the next: first to last, that was every later job's row each time."""
    jobs = [make_job(place=100 * place, arrival=place) for place in range(5)]
    keys = [job.order_key for job in jobs]
    act(admin_client, "cancel", *jobs)
    assert set(states(*jobs)) == {"cancelled"}
    assert [job.order_key for job in jobs] == keys


LIMITS = "/admin/generation/queue/gpu/change/"


def test_it_edits_a_queues_limits_and_nothing_else(admin_client: Client) -> None:
    row = Queue.objects.create(name="gpu", virtual_time=7)
    assert "the setting" in admin_client.get(LIMITS).content.decode()
    fields = {"max_size": "5", "max_wait_seconds": "90", "paused": "on", "virtual_time": "0", "name": "other"}
    assert admin_client.post(LIMITS, fields).status_code == 302
    row.refresh_from_db()
    assert (row.max_size, row.max_wait_seconds, row.paused, row.virtual_time) == (5, 90.0, False, 7)
    admin_client.post(LIMITS, {"max_size": "", "max_wait_seconds": ""})
    row.refresh_from_db()
    assert (row.max_size, row.max_wait_seconds) == (None, None)
    assert [found.name for found in Queue.objects.all()] == ["gpu"]


@pytest.mark.parametrize(
    "fields",
    [{"max_size": "-1"}, {"max_size": "many"}, {"max_size": "1e30"}]
    + [{"max_wait_seconds": value} for value in ("-1", "0", "nan", "inf", "1e300")],
    ids=str,
)
def test_it_refuses_limits_that_no_queue_can_have(admin_client: Client, fields: dict[str, str]) -> None:
    row = Queue.objects.create(name="gpu")
    assert admin_client.post(LIMITS, fields).status_code == 200
    row.refresh_from_db()
    assert (row.max_size, row.max_wait_seconds) == (None, None)


def test_it_lets_nobody_edit_limits_who_may_only_look() -> None:
    row = Queue.objects.create(name="gpu")
    client = staff_with("view_queue")
    assert client.get(LIMITS).status_code == 200
    assert client.post(LIMITS, {"max_size": "5"}).status_code == 403
    row.refresh_from_db()
    assert row.max_size is None


def test_it_keeps_what_changed_while_somebody_edits(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form's old row, saved whole, took a pause back and moved virtual time backwards."""
    Queue.objects.create(name="gpu")
    save = Queue.save

    def meanwhile(self: Queue, *args: Any, **kwargs: Any) -> None:
        Queue.objects.update(paused=True, virtual_time=99)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Queue, "save", meanwhile)
    admin_client.post(LIMITS, {"max_size": "5"})
    row = Queue.objects.get()
    assert (row.max_size, row.paused, row.virtual_time) == (5, True, 99)
