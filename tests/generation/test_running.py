"""What a running job does when the database breaks off."""

import time

import pytest
from django.db import connection, transaction

from generation import running
from tests.site import PATIENCE_SECONDS


def _wait_until_the_server_ended(pid: int) -> None:
    observer = connection.copy()
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with observer.cursor() as cursor:
            while True:
                cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid])
                if cursor.fetchone() is None:
                    return
                assert time.monotonic() < deadline
    finally:
        observer.close()


@pytest.mark.django_db(transaction=True)
def test_it_writes_a_change_again_whose_transaction_the_server_ended() -> None:
    """A worker that stood still in mid-transaction failed its job instead of writing its end."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite ends no transaction by itself")
    pids = []

    def change() -> str:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.append(cursor.fetchone()[0])
            if len(pids) == 1:
                cursor.execute("SET idle_in_transaction_session_timeout = '50ms'")
                _wait_until_the_server_ended(pids[0])
            cursor.execute("SELECT 1")
        return "done"

    assert running.with_database(change) == "done"
    assert len(set(pids)) == 2
