"""Quotas and the ledger in the admin: the one is edited, the other read."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from generation import instants, ledger
from generation.models import Quota, TokenUse
from tests.generation.asking import person
from tests.generation.rows import staff_with

pytestmark = pytest.mark.django_db

QUOTAS, USES = "/admin/generation/quota/", "/admin/generation/tokenuse/"


def quota_of(**fields: Any) -> dict[str, str]:
    """What the form of a quota sends."""
    sent = {"user": "", "group": "", "tokens_per_day": "", "tokens_per_month": ""}
    return sent | {name: str(value) for name, value in fields.items()}


def test_it_adds_changes_and_deletes_quotas(admin_client: Client) -> None:
    group = Group.objects.create(name="students")
    admin_client.post(f"{QUOTAS}add/", quota_of(group=group.pk, tokens_per_day=1000))
    quota = Quota.objects.get()
    assert (quota.group, quota.tokens_per_day, quota.tokens_per_month) == (group, 1000, None)
    ada = person("ada")
    admin_client.post(f"{QUOTAS}{quota.pk}/change/", quota_of(user=ada.pk, tokens_per_month=0))
    quota.refresh_from_db()
    assert (quota.user, quota.group, quota.tokens_per_day, quota.tokens_per_month) == (ada, None, None, 0)
    admin_client.post(f"{QUOTAS}{quota.pk}/delete/", {"post": "yes"})
    assert not Quota.objects.exists()


def test_it_says_what_is_wrong_with_a_quota_instead_of_failing(admin_client: Client) -> None:
    ada, group = person("ada"), Group.objects.create(name="students")
    Quota.objects.create()
    Quota.objects.create(user=ada)
    for fields, complaint in (
        ({"user": ada.pk, "group": group.pk}, "a person&#x27;s or a group&#x27;s, not both"),
        ({}, "There is a quota for everybody already."),
        ({"user": ada.pk}, "already exists"),
        ({"group": group.pk, "tokens_per_day": -1}, "greater than or equal to 0"),
    ):
        response = admin_client.post(f"{QUOTAS}add/", quota_of(**fields))
        assert response.status_code == 200
        assert complaint in response.content.decode()
    assert Quota.objects.count() == 2


def test_it_lists_quotas_with_what_each_person_has_used(admin_client: Client) -> None:
    today = ledger.day_of(instants.now())
    ada, group = person("ada"), Group.objects.create(name="students")
    ada.groups.add(group)
    for owner in ({"user": ada}, {"user": person("bob")}, {"group": group}, {}):
        Quota.objects.create(**owner, tokens_per_day=1000)
    for days, tokens in ((0, 1234), (today.day, 5000)):  # the other one is of the month before
        TokenUse.objects.create(user=ada, day=today - timedelta(days=days), tokens=tokens)
    if today.day > 1:
        TokenUse.objects.create(user=ada, day=today.replace(day=1), tokens=1)
    response = admin_client.get(QUOTAS)
    shown = response.context["cl"].model_admin
    found = {
        str(row): (shown.per_day(row), shown.used_today(row), shown.per_month(row), shown.used_this_month(row))
        for row in response.context["cl"].result_list
    }
    assert found == {
        "ada": ("1,000", "1,234", "–", "1,235" if today.day > 1 else "1,234"),
        "bob": ("1,000", "0", "–", "0"),
        "group students": ("1,000", "–", "–", "–"),
        "everybody else": ("1,000", "–", "–", "–"),
    }


@pytest.mark.parametrize("page", [QUOTAS, USES])
def test_it_lists_many_rows_in_as_many_queries_as_one(admin_client: Client, page: str) -> None:
    today = ledger.day_of(instants.now())
    counts = []
    for number in (1, 21):
        for each in range(number):
            user = person(f"person-{number}-{each}")
            Quota.objects.create(user=user)
            TokenUse.objects.create(user=user, day=today, tokens=1)
        with CaptureQueriesContext(connection) as queries:
            rows = admin_client.get(page).context["cl"].result_list
        assert len(rows) == TokenUse.objects.count()
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_it_neither_adds_nor_edits_nor_deletes_what_was_used(admin_client: Client) -> None:
    use = TokenUse.objects.create(user=person("ada"), day=ledger.day_of(instants.now()), tokens=7)
    assert "ada" in admin_client.get(USES, {"q": "ada"}).content.decode()
    assert admin_client.get(f"{USES}add/").status_code == 403
    page = f"{USES}{use.pk}/change/"
    assert 'name="_save"' not in admin_client.get(page).content.decode()
    assert admin_client.post(page, {"tokens": "0"}).status_code == 403
    assert admin_client.post(f"{USES}{use.pk}/delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [str(use.pk)], "post": "yes"}
    admin_client.post(USES, chosen)
    assert TokenUse.objects.get().tokens == 7


@pytest.mark.parametrize("at_once", [False, True])
def test_it_deletes_a_person_with_what_they_used(admin_client: Client, at_once: bool) -> None:
    ada = person("ada")
    TokenUse.objects.create(user=ada, day=ledger.day_of(instants.now()), tokens=7)
    if at_once:
        chosen = {"action": "delete_selected", "_selected_action": [str(ada.pk)], "post": "yes"}
        admin_client.post("/admin/auth/user/", chosen)
    else:
        admin_client.post(f"/admin/auth/user/{ada.pk}/delete/", {"post": "yes"})
    assert not get_user_model().objects.filter(pk=ada.pk).exists()
    assert not TokenUse.objects.exists()


def test_it_lets_nobody_change_a_quota_who_may_only_look() -> None:
    quota = Quota.objects.create(tokens_per_day=5)
    client = staff_with("view_quota")
    assert client.get(QUOTAS).status_code == 200
    assert client.post(f"{QUOTAS}{quota.pk}/change/", quota_of(tokens_per_day=9)).status_code == 403
    assert Quota.objects.get().tokens_per_day == 5
