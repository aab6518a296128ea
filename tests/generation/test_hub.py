"""The hub's tasks come and go with the sockets of its process."""

import asyncio
from typing import Any

import pytest
from django.utils.translation import get_language, override

from generation.delivery import hub as hub_module
from generation.delivery.hub import Hub
from generation.outages import Outages, Problem

pytestmark = pytest.mark.django_db(transaction=True)


class OpenSocket:
    sign_in: Any = None

    def __init__(self) -> None:
        self.ticked = asyncio.Event()

    async def tick(self) -> None:
        self.language = get_language()
        self.ticked.set()

    async def signed_out(self) -> None: ...

    async def tell_problems(self, problems: tuple[Problem, ...]) -> None: ...


def test_a_socket_that_comes_while_the_last_one_leaves_gets_its_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came while the watch of those before was being closed, and heard nothing until the browser gave it up."""
    closing: list[asyncio.Event] = []

    class SlowToClose(Outages):
        async def close(self) -> None:
            closing[0].set()
            await closing[1].wait()
            await super().close()

    monkeypatch.setattr(hub_module, "Outages", SlowToClose)
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.01)

    async def come_and_go() -> None:
        closing[:] = asyncio.Event(), asyncio.Event()
        hub, first, second = Hub(), OpenSocket(), OpenSocket()
        hub.add_socket(first)
        await first.ticked.wait()
        hub.remove_socket(first)
        await closing[0].wait()
        hub.add_socket(second)
        closing[1].set()
        await asyncio.wait_for(second.ticked.wait(), 10)
        hub.remove_socket(second)
        await asyncio.gather(hub._task or asyncio.sleep(0), hub._watch_task or asyncio.sleep(0))

    asyncio.run(come_and_go())


def test_it_does_not_speak_the_language_of_the_socket_that_woke_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does for all it would otherwise do in the first comer's language, as long as the process lives."""
    monkeypatch.setattr(hub_module, "TICK_SECONDS", 0.01)

    async def wake() -> str | None:
        hub, socket = Hub(), OpenSocket()
        with override("ja"):
            hub.add_socket(socket)
        await socket.ticked.wait()
        hub.remove_socket(socket)
        await asyncio.gather(hub._task or asyncio.sleep(0), hub._watch_task or asyncio.sleep(0))
        return socket.language

    assert asyncio.run(wake()) == "en"
