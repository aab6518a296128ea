"""An app that makes a site's sockets send heartbeats ten times as often."""

from pathlib import Path

from django.apps import AppConfig

FASTER = 10


class Brisk(AppConfig):
    name = "tests.faults.brisk"
    path = str(Path(__file__).parent)

    def ready(self) -> None:
        from generation import consumers

        consumers.HEARTBEAT_SECONDS /= FASTER
