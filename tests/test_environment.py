"""The processes that run tests side by side: each with a Redis of its own."""

import os
from pathlib import Path

from django.conf import settings

from generation.delivery import stream


def test_it_uses_the_redis_that_this_process_started() -> None:
    """Two that shared one took each other's wakes, and one's emptied Redis took the other's replies."""
    assert os.environ["REDIS_URL"] == settings.REDIS_URL
    assert os.environ["CHATSITE_VAR"] == str(settings.VAR)
    port = stream.sync_client().connection_pool.connection_kwargs["port"]
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert str(stream.sync_client().info("server")["process_id"]) in children
    assert f":{port}/" in settings.REDIS_URL
