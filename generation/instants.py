"""Instants that decide come from one clock: the database server's."""

from datetime import datetime

from django.db import connection
from django.utils import timezone


def now() -> datetime:
    """The database server's time; on SQLite the host's, there being one host."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        instant: datetime = cursor.fetchone()[0]
    return instant
