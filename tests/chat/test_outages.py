"""What a socket is told of outages: when it is opened into one, and when one begins and ends."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from generation.outages import Outages
from tests.chat.sockets import Socket, open_socket, people, rows
from tests.faults.outages import full_redis
from tests.generation.rows import make_worker
from tests.site import Site, running


@pytest.fixture(scope="module")
def shaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("shaken"), "--no-flower")
    with running(site):
        yield site


def until_told(socket: Socket, *codes: str) -> None:
    """Read on until exactly this is said to be down; nothing: all is well again."""
    socket.until(lambda frame: [problem["code"] for problem in frame.get("problems", [{"code": ""}])] == list(codes))


def test_a_socket_is_told_what_is_down_and_that_it_is_over(shaken: Site) -> None:
    (ada,) = people(shaken)
    with ada.socket() as socket:
        with full_redis(shaken):
            until_told(socket, "redis_full")
            with ada.socket(language="ja") as late:
                until_told(late, "redis_full")
                assert late.frames[-1]["problems"][0]["message"].startswith("メッセージサービスの容量が")
        until_told(socket)


def test_a_socket_that_cannot_be_served_says_why_and_closes(shaken: Site) -> None:
    """It failed in the handshake, as if nobody were there."""
    (ada,) = people(shaken)
    before = shaken.lines.count
    with ada.socket() as witness, shaken.unsupervised():
        os.kill(shaken.up["pids"]["redis"], signal.SIGKILL)
        until_told(witness, "redis")
        with open_socket(shaken, **{**ada.headers, "Accept-Language": "ja"}) as socket:
            [problem] = socket.next()["problems"]
            assert problem["code"] == "redis"
            assert problem["message"].startswith("メッセージサービスに接続できません。")
            assert socket.close_code() == 4503
    shaken.lines.wait_for("started again: redis", after=before)


def test_hello_says_whose_socket_it_is(site: Site) -> None:
    """A page whose browser signed somebody else in must not ask in that person's name."""
    (ada,) = people(site)
    with ada.socket() as socket:
        assert [(int(socket.hello["user"]),)] == rows(site, "SELECT id FROM auth_user WHERE username = ?", ada.name)


@pytest.mark.django_db(transaction=True)
def test_it_names_the_models_that_have_no_worker(settings: object) -> None:
    settings.GENERATION_MODELS = "one=mock:?queue=a two=mock:?queue=b three=mock:?queue=b"  # type: ignore[attr-defined]
    make_worker(queue="a")
    make_worker(queue="b", draining=True)

    async def look() -> list[tuple[str, str]]:
        outages = Outages()
        assert await outages.look()
        assert not await outages.look(), "nothing changed"
        await outages.close()
        return [(problem.code, problem.message) for problem in outages.problems]

    (found,) = asyncio.run(look())
    assert found == ("model_without_worker", "No worker is running for two, three. Messages wait in line until one is.")
