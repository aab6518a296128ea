"""What gets into the line and what is refused: each limit's code, and that limits are exact when threads race."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from generation import admission, conf, queue
from generation.models import Job, Queue
from generation.queue import Refused
from tests.generation.asking import ask, claim, in_threads, operator, person
from tests.generation.rows import make_job, make_worker


@pytest.fixture(autouse=True)
def one_model(settings: Any) -> None:
    settings.GENERATION_MODELS = "mock=mock: slow=mock:?queue=slow"
    settings.GENERATION_MAX_JOBS_PER_USER = settings.GENERATION_MESSAGES_PER_MINUTE = 1000


def refusal(name: str = "ada", messages: Any = None, **options: Any) -> Refused:
    """The refusal of this prompt; nothing may have been written."""
    before = Job.objects.count()
    with pytest.raises(Refused) as caught:
        queue.submit(person(name), [{"role": "user", "content": "hi"}] if messages is None else messages, **options)
    assert Job.objects.count() == before
    assert caught.value.message.endswith((".", "s.", ")")) or caught.value.code == "bad_params"
    return caught.value


def said(content: Any, role: Any = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "messages",
    [
        [],
        "",
        [said("")],
        [said(" \n\t\u3000")],
        [said("\u200b\u200d\ufeff\u2060")],
        [said("\u3164\u2800\ufe0f\u034f")],
        [said("\x01\x02")],
        [said("hello"), said("hi", "assistant"), said("  ")],
        [said("be brief", "system")],
        [said("hello"), said("be brief", "system")],
        [said("once upon", "assistant")],
    ],
)
def test_it_refuses_a_prompt_in_which_nobody_sees_anything(messages: Any) -> None:
    """One empty prompt reached the model, and no later request was ever answered (vllm-project/vllm#7283)."""
    assert refusal(messages=messages).code == "empty_prompt"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "messages",
    [
        [said("hi", "tool")],
        [said("hi", ["user"])],
        [said("hi", None)],
        [said(5)],
        [said(None)],
        [{"role": "user"}],
        ["hi"],
        [None],
        b"hi",
    ],
)
def test_it_refuses_what_is_no_list_of_messages(messages: Any) -> None:
    assert refusal(messages=messages).code == "bad_frame"


@pytest.mark.django_db
def test_it_takes_a_reply_that_is_to_be_continued() -> None:
    user = person("ada")
    job = queue.submit(user, [said("count to three"), said("one two", "assistant")])
    assert job.messages[-1]["role"] == "assistant"


@pytest.mark.django_db
def test_it_stores_what_no_database_holds_as_replacement_characters() -> None:
    """A NUL or half a surrogate pair in a prompt is text to Python, and an error to PostgreSQL."""
    job = ask(text="a\0b \ud83d\ude00 c\ud800d", params={"stop": ["x\0", "\udfff"]})
    job.refresh_from_db()
    assert job.messages[0]["content"] == "a\ufffdb \U0001f600 c\ufffdd"
    assert job.params["stop"] == ["x\ufffd", "\ufffd"]


@pytest.mark.django_db
def test_it_counts_the_characters_of_a_prompt(settings: Any) -> None:
    settings.GENERATION_MAX_PROMPT_CHARS = 10
    ask(text="x" * 10)
    refused = refusal(messages=[said("x" * 11)])
    assert refused.code == "prompt_too_long"
    assert "11" in refused.message and "10" in refused.message


@pytest.mark.django_db
@pytest.mark.parametrize("params", [{"temperature": float("nan")}, {"max_new_tokens": 10**12}, {"warmth": 1}])
def test_it_refuses_parameters_out_of_range(params: dict[str, object]) -> None:
    assert refusal(params=params).code == "bad_params"


@pytest.mark.django_db
def test_it_draws_a_seed_once_so_that_a_successor_draws_the_same_numbers() -> None:
    first, second = ask(), ask()
    assert isinstance(first.params["seed"], int)
    assert first.params["seed"] != second.params["seed"]
    assert ask(params={"seed": 7}).params["seed"] == 7


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["nothing", "x" * 10_000, "a\0b\ud800"])
def test_it_refuses_a_model_that_is_configured_nowhere(name: str) -> None:
    refused = refusal(model=name)
    assert refused.code == "model_unavailable"
    assert len(refused.message) < 300
    refused.message.encode()


@pytest.mark.django_db
def test_it_takes_prompts_while_no_worker_is_up() -> None:
    assert ask().state == Job.State.QUEUED


@pytest.mark.django_db
def test_it_refuses_a_model_that_failed_to_load_on_every_live_worker() -> None:
    failed = [{"name": "mock", "state": "failed", "error": "no such file"}]
    make_worker(models=failed)
    make_worker(models=failed)
    dead = timezone.now() - timedelta(seconds=2 * conf.lease_seconds())
    make_worker(last_seen_at=dead)
    make_worker(stopped_at=timezone.now())
    assert refusal().code == "model_unavailable"
    make_worker(models=[{"name": "mock", "state": "loading", "error": ""}])
    ask()


@pytest.mark.django_db
def test_it_tells_people_the_kind_of_a_loading_error_and_staff_the_whole() -> None:
    make_worker(
        models=[{"name": "mock", "state": "failed", "error": "FileNotFoundError: there is no file /secret.gguf"}]
    )
    assert refusal().message == "The model mock could not be loaded: its files are missing."
    operator()
    told = refusal("operator").message
    assert told == (
        "The model mock could not be loaded on worker celery@one on one: "
        "FileNotFoundError: there is no file /secret.gguf."
    )


@pytest.mark.django_db
def test_it_counts_waiting_and_running_prompts_of_a_person(settings: Any) -> None:
    settings.GENERATION_MAX_JOBS_PER_USER = 2
    worker = make_worker()
    running, waiting = ask(), ask()
    assert claim(worker) == running
    refused = refusal(model="slow")
    assert refused.code == "too_many_jobs"
    assert refused.message == (
        "You have 2 prompts waiting or running; 2 are allowed at once. The next one when one of them ends."
    )
    ask("bob")
    queue.cancel(waiting)
    ask()


@pytest.mark.django_db
def test_it_counts_messages_of_the_last_minute_whatever_became_of_them(settings: Any) -> None:
    settings.GENERATION_MESSAGES_PER_MINUTE = 3
    make_job(created_at=timezone.now() - timedelta(seconds=61))
    for _ in range(2):
        queue.cancel(ask())
    make_job(Job.State.FINISHED, created_at=timezone.now() - timedelta(seconds=50))
    refused = refusal()
    assert refused.code == "rate_limited"
    assert refused.message.startswith("3 messages a minute are allowed; the next one in ")
    assert any(f"in {seconds} s" in refused.message for seconds in range(1, 11))
    ask("bob")


@pytest.mark.django_db
def test_it_takes_the_next_message_when_it_said(settings: Any) -> None:
    """A wait that was rounded down had people told once more to wait."""
    settings.GENERATION_MESSAGES_PER_MINUTE = 1
    now = timezone.now()
    make_job(Job.State.FINISHED, created_at=now - timedelta(seconds=48.7))
    with pytest.raises(Refused) as caught:
        admission.check_limits(Queue.objects.get(), person("ada").pk, now)
    assert caught.value.message.endswith("in 12 s.")
    admission.check_limits(Queue.objects.get(), person("ada").pk, now + timedelta(seconds=12))


@pytest.mark.django_db
def test_it_says_how_many_wait_when_the_line_is_full(settings: Any) -> None:
    settings.GENERATION_MAX_QUEUE_SIZE = 1
    ask("ada")
    assert refusal("bob").message.startswith("1 prompt is waiting; 1 is allowed. Try again")


@pytest.mark.django_db
def test_it_counts_what_waits_and_lets_the_operator_set_another_size(settings: Any) -> None:
    settings.GENERATION_MAX_QUEUE_SIZE = 2
    ask("a"), ask("b")
    assert refusal("c").code == "queue_full"
    Queue.objects.update(max_size=3)
    ask("c")
    assert refusal("d").code == "queue_full"
    ask("d", model="slow")
    claim(make_worker())
    ask("d")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("setting", "people", "code"),
    [
        ("GENERATION_MAX_QUEUE_SIZE", 8, "queue_full"),
        ("GENERATION_MAX_JOBS_PER_USER", 1, "too_many_jobs"),
        ("GENERATION_MESSAGES_PER_MINUTE", 1, "rate_limited"),
    ],
)
def test_it_keeps_a_limit_exactly_while_threads_race(settings: Any, setting: str, people: int, code: str) -> None:
    """Under load the default database answered `database is locked` at once, whatever its timeout
    (learningequality/kolibri#13878)."""
    setattr(settings, setting, 10)
    users = [person(f"person{number}") for number in range(people)]
    outcomes: list[Any] = []

    def act(index: int) -> None:
        for _ in range(5):
            try:
                outcomes.append(queue.submit(users[index % people], [said("hi")]).pk)
            except Refused as refused:
                outcomes.append(refused.code)

    assert in_threads(8, act) == [None] * 8
    assert outcomes.count(code) == 30
    assert Job.objects.count() == 10


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("setting", "code"),
    [("GENERATION_MAX_JOBS_PER_USER", "too_many_jobs"), ("GENERATION_MESSAGES_PER_MINUTE", "rate_limited")],
)
def test_it_keeps_a_persons_limit_exactly_while_two_queues_race(settings: Any, setting: str, code: str) -> None:
    """Each queue has a lock of its own, and a person's limit is over all of them."""
    user = person("ada")
    for limit in (1, 2, 3, 5, 8, 13, 20):
        Job.objects.all().delete()
        setattr(settings, setting, limit)

        def act(index: int, taken: int = limit // 2 + 1) -> list[str]:
            codes = []
            for _ in range(taken):
                try:
                    queue.submit(user, [said("hi")], model=("mock", "slow")[index % 2])
                except Refused as refused:
                    codes.append(refused.code)
            return codes

        codes = [each for outcome in in_threads(4, act) for each in outcome]  # type: ignore[union-attr]
        assert set(codes) <= {code}
        assert Job.objects.count() == limit


@pytest.mark.django_db(transaction=True)
def test_it_makes_one_job_of_a_prompt_that_is_sent_twice_at_once() -> None:
    user, client_id = person("ada"), uuid.uuid4()
    jobs = in_threads(8, lambda _: queue.submit(user, [said("hi")], client_id=client_id))
    assert {job.pk for job in jobs if isinstance(job, Job)} == {Job.objects.get().pk}
    assert len([job for job in jobs if isinstance(job, Job)]) == 8


@pytest.mark.django_db(transaction=True)
def test_it_makes_one_job_of_a_prompt_sent_for_two_queues_at_once() -> None:
    user, client_id = person("ada"), uuid.uuid4()
    models = ["mock", "slow"]
    jobs = in_threads(8, lambda index: queue.submit(user, [said("hi")], model=models[index % 2], client_id=client_id))
    assert [job for job in jobs if not isinstance(job, Job)] == []
    assert {job.pk for job in jobs if isinstance(job, Job)} == {Job.objects.get().pk}


@pytest.mark.django_db
def test_it_answers_a_resent_prompt_with_its_job_also_past_a_limit_and_after_its_end(settings: Any) -> None:
    client_id = uuid.uuid4()
    job = ask(client_id=client_id)
    settings.GENERATION_MESSAGES_PER_MINUTE = 1
    assert ask(client_id=client_id) == job
    queue.cancel(job)
    assert ask(client_id=client_id) == job
    assert ask("bob", client_id=client_id) != job
