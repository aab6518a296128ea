"""Clears what a job was asked once it has been over for `GENERATION_RETENTION_DAYS`; its reply stays."""

from datetime import timedelta

from generation import conf, instants
from generation.models import Job

BATCH = 1000


def clear_old_messages() -> int:
    """Clear the messages of jobs that ended long ago; how many."""
    days = conf.retention_days()
    if days is None:
        return 0
    over = Job.objects.filter(state__in=Job.FINAL, ended_at__lt=instants.now() - timedelta(days=days))
    cleared = 0
    # In batches, so that no line waits long for the rows' locks.
    while ids := list(over.exclude(messages=[]).values_list("pk", flat=True)[:BATCH]):
        cleared += Job.objects.filter(pk__in=ids).update(messages=[])
    return cleared
