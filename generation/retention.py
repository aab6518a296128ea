"""Clears what jobs were asked and what they wrote, when that is no longer kept; the rows and their figures stay."""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from django.db import transaction

from generation import conf, instants, notices
from generation.models import Job

BATCH = 1000


def clear_old_messages() -> int:
    """Clear what jobs were asked that ended more than `GENERATION_RETENTION_DAYS` ago; how many. Replies stay."""
    days = conf.retention_days()
    if days is None:
        return 0
    over = Job.objects.filter(state__in=Job.FINAL, ended_at__lt=instants.now() - timedelta(days=days))
    cleared = 0
    # In batches, so that no line waits long for the rows' locks.
    while ids := list(over.exclude(messages=[]).values_list("pk", flat=True)[:BATCH]):
        cleared += Job.objects.filter(pk__in=ids).update(messages=[])
    return cleared


def forget_texts(job_ids: Collection[UUID]) -> None:
    """Clear every text of these ended jobs, and their streams once the transaction has committed."""
    Job.objects.filter(pk__in=job_ids, state__in=Job.FINAL).update(
        messages=[], params={}, text="", error_message="", error_traceback=""
    )

    def forget_streams() -> None:
        for job_id in job_ids:
            notices.forget_stream(job_id)

    transaction.on_commit(forget_streams)
