"""Quotas: whose row counts, what is refused with which figures, and that nothing gives used tokens back."""

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from generation import instants, ledger, queue, quotas, retention
from generation.models import Job, Quota, TokenUse
from generation.queue import Refused
from tests.generation.asking import ask, claim, person
from tests.generation.rows import make_job, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_model")]


def has_used(name: str, tokens: int, day: date | None = None) -> None:
    TokenUse.objects.create(user=person(name), day=day or ledger.day_of(instants.now()), tokens=tokens)


def refusal(name: str = "ada") -> Refused:
    """The refusal of this person's prompt; nothing may have been written."""
    before = Job.objects.count()
    with pytest.raises(Refused) as caught:
        ask(name)
    assert Job.objects.count() == before
    assert caught.value.code == "quota_exceeded"
    return caught.value


def group(name: str) -> Group:
    return Group.objects.get_or_create(name=name)[0]


def member(name: str, *groups: str) -> None:
    for each in groups:
        person(name).groups.add(group(each))


@pytest.mark.parametrize("limit", ["tokens_per_day", "tokens_per_month"])
def test_it_takes_a_prompt_one_token_below_the_quota_and_none_at_it(limit: str) -> None:
    Quota.objects.create(user=person("ada"), **{limit: 100})
    has_used("ada", 99)
    ask()
    TokenUse.objects.update(tokens=100)
    assert "100 of the 100 tokens" in refusal().message
    TokenUse.objects.update(tokens=12_345)
    assert "12,345 of the 100 tokens" in refusal().message
    ask("bob")


def test_it_refuses_everything_where_nothing_is_allowed() -> None:
    Quota.objects.create(tokens_per_day=0)
    refusal()


def test_it_counts_a_day_by_itself_and_a_month_as_a_whole() -> None:
    today = ledger.day_of(instants.now())
    first = today.replace(day=1)
    has_used("ada", 70)
    has_used("ada", 1000, first - timedelta(days=1))
    if today != first:
        has_used("ada", 30, first)
    Quota.objects.create(tokens_per_day=71, tokens_per_month=101)
    ask()
    Quota.objects.update(tokens_per_day=70)
    assert "70 of the 70 tokens of this day" in refusal().message
    in_month = 70 if today == first else 100
    Quota.objects.update(tokens_per_day=None, tokens_per_month=in_month)
    assert f"{in_month} of the {in_month} tokens of this month" in refusal().message


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (datetime(2031, 2, 3, 20, 48, tzinfo=UTC), "resets at 00:00 UTC, in 3 h 12 min."),
        (datetime(2031, 2, 3, 23, 59, 59, tzinfo=UTC), "resets at 00:00 UTC, in 1 min."),
        (datetime(2031, 2, 4, 4, 48, tzinfo=UTC).astimezone(), "resets at 00:00 UTC, in 19 h 12 min."),
    ],
)
def test_it_says_when_the_day_ends(now: datetime, said: str) -> None:
    Quota.objects.create(tokens_per_day=5)
    has_used("ada", 5, now.astimezone(UTC).date())
    message = quotas.refusal(person("ada"), now)
    assert message is not None and message.endswith(said)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (datetime(2031, 2, 3, 12, tzinfo=UTC), "resets on 1 March at 00:00 UTC, in 25 days."),
        (datetime(2031, 12, 31, 21, tzinfo=UTC), "resets on 1 January at 00:00 UTC, in 3 h 0 min."),
    ],
)
def test_it_says_when_the_month_ends_though_the_day_is_used_up_too(now: datetime, said: str) -> None:
    Quota.objects.create(tokens_per_day=5, tokens_per_month=5)
    has_used("ada", 5, now.date())
    message = quotas.refusal(person("ada"), now)
    assert message is not None and message.endswith(said)


def test_a_persons_own_quota_counts_before_those_of_groups_and_everybodys() -> None:
    member("ada", "students")
    Quota.objects.create(tokens_per_day=1)
    Quota.objects.create(group=group("students"), tokens_per_day=1000)
    own = Quota.objects.create(user=person("ada"), tokens_per_day=10)
    has_used("ada", 10)
    refusal()
    Quota.objects.filter(pk=own.pk).update(tokens_per_day=None)
    ask()


def test_of_several_groups_the_most_generous_counts_for_each_figure() -> None:
    member("ada", "students", "staff")
    few = Quota.objects.create(group=group("students"), tokens_per_day=10, tokens_per_month=2000)
    Quota.objects.create(group=group("staff"), tokens_per_day=100, tokens_per_month=50)
    Quota.objects.create(tokens_per_day=1)
    has_used("ada", 99)
    ask()
    TokenUse.objects.update(tokens=100)
    assert "100 of the 100 tokens of this day" in refusal().message
    Quota.objects.filter(pk=few.pk).update(tokens_per_day=None)
    ask()


def test_a_groups_quota_is_for_each_of_its_members() -> None:
    member("ada", "students")
    member("bob", "students")
    Quota.objects.create(group=group("students"), tokens_per_day=10)
    has_used("ada", 10)
    refusal()
    ask("bob")


def test_everybodys_quota_is_for_those_who_have_no_other() -> None:
    Quota.objects.create(tokens_per_day=10)
    member("bob", "without a quota")
    for name in ("ada", "bob"):
        has_used(name, 10)
        refusal(name)


@pytest.mark.parametrize("twice", [{}, {"user": "ada"}, {"group": "staff"}, {"user": "bob", "group": "students"}])
def test_it_stores_one_quota_for_each_and_for_everybody(twice: dict[str, str]) -> None:
    for owner in ({}, {"user": person("ada")}, {"group": group("staff")}):
        Quota.objects.create(**owner)
    owner = {"user": person(twice["user"])} if "user" in twice else {}
    owner |= {"group": group(twice["group"])} if "group" in twice else {}
    with pytest.raises(IntegrityError), transaction.atomic():
        Quota.objects.create(**owner)


def test_a_resent_prompt_is_answered_with_its_job_also_past_the_quota() -> None:
    client_id = uuid.uuid4()
    job = ask(client_id=client_id)
    Quota.objects.create(tokens_per_day=0)
    assert ask(client_id=client_id) == job


def test_it_gives_nothing_back_for_what_is_deleted_or_swept(settings: Any) -> None:
    settings.GENERATION_RETENTION_DAYS = 1
    Quota.objects.create(tokens_per_day=10)
    job = make_job(Job.State.RUNNING, worker=make_worker())
    queue.end(job.pk, 1, Job.State.FINISHED, prompt_tokens=4, completion_tokens=6)
    Job.objects.update(ended_at=instants.now() - timedelta(days=2))
    assert retention.clear_old_messages() == 1
    refusal()
    Job.objects.all().delete()
    assert "10 of the 10" in refusal().message


def test_deleting_a_person_deletes_what_they_used() -> None:
    has_used("ada", 10)
    has_used("bob", 5)
    ask("ada")
    get_user_model().objects.get(username="ada").delete()
    assert TokenUse.objects.get().tokens == 5


def test_it_refuses_nothing_that_is_in_line_when_the_quota_ends() -> None:
    Quota.objects.create(tokens_per_day=10)
    first, second = ask(), ask()
    worker = make_worker()
    assert claim(worker) == first
    queue.end(first.pk, 1, Job.State.FINISHED, prompt_tokens=4, completion_tokens=6)
    refusal()
    assert claim(worker) == second


def test_it_asks_once_whether_there_is_a_quota_where_there_is_none() -> None:
    user, now = person("ada"), instants.now()
    with CaptureQueriesContext(connection) as queries:
        quotas.refusal(user, now)
    assert len(queries) == 1
