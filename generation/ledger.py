"""What each person's jobs have used: tokens of prompts and replies by day, and nothing about who may use how many.

A job is charged once for each time it ends, in the transaction that ends it. Nothing is ever taken back: not with a
job, its messages or its conversation.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection
from django.db.models import F, Q, Sum

from generation.models import Account, Job, TokenUse


def day_of(instant: datetime) -> date:
    """The ledger's days are UTC's."""
    return instant.astimezone(UTC).date()


def lock(user_id: Any) -> None:
    """Let this person's other submits wait until the transaction ends. The Queue row's lock is taken before it."""
    if not connection.features.has_select_for_update:
        return  # the only writer has the whole database
    rows = Account.objects.select_for_update(no_key=True).filter(pk=user_id)
    if not rows.values("pk"):
        Account.objects.bulk_create([Account(user_id=user_id)], ignore_conflicts=True)
        rows.get()


def charge(job_id: Any, now: datetime) -> None:
    """Add what a job has computed to its person's day, in the transaction that has just ended it.

    Of several in one transaction, persons with lower keys come first, so that two such never wait for each other.
    """
    user_id, prompt, completion = Job.objects.values_list("user_id", "prompt_tokens", "completion_tokens").get(
        pk=job_id
    )
    if not (tokens := prompt + completion):
        return
    row = TokenUse.objects.filter(user_id=user_id, day=day_of(now))
    if not row.update(tokens=F("tokens") + tokens):
        TokenUse.objects.bulk_create([TokenUse(user_id=user_id, day=day_of(now))], ignore_conflicts=True)
        row.update(tokens=F("tokens") + tokens)


def used(user_id: Any, today: date) -> Mapping[str, int]:
    """The person's tokens of this `day` and this `month`."""
    sums = TokenUse.objects.filter(user_id=user_id, day__gte=today.replace(day=1), day__lte=today).aggregate(
        day=Sum("tokens", filter=Q(day=today), default=0), month=Sum("tokens", default=0)
    )
    return {period: int(tokens) for period, tokens in sums.items()}
