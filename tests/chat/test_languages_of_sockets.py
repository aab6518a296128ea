"""Each socket is answered in its own language, whatever the others speak and whoever sends."""

from uuid import UUID

import pytest

from tests.chat.sockets import open_socket, people, rows
from tests.site import Site

TOO_LONG = "w " * 5_000


def test_a_refusal_is_in_the_browsers_language_and_its_code_is_not(site: Site) -> None:
    [ada] = people(site)
    with ada.socket(language="ja") as socket:
        socket.send("prompt", id="3f1e6a52-3f43-4a9d-8a39-6f4f5e0c9d11", text=" ")
        refused = socket.error()
    assert (refused["code"], refused["message"]) == ("empty_prompt", "メッセージが空です。")


@pytest.mark.parametrize(
    ("cookie", "message"), [("en", "The frame is not JSON."), ("tlh", "フレームがJSONではありません。")]
)
def test_the_chosen_language_counts_before_the_browsers(site: Site, cookie: str, message: str) -> None:
    [ada] = people(site)
    headers = {"Cookie": f"{ada.headers['Cookie']}; django_language={cookie}", "Accept-Language": "ja"}
    with open_socket(site, **headers) as socket:
        socket.next()
        socket.raw("{")
        assert socket.error()["message"] == message


def test_two_readers_of_one_job_are_each_told_of_its_end_in_their_language(site: Site) -> None:
    [ada] = people(site)
    with ada.socket(language="ja") as socket:
        queued = socket.prompt("w")
        socket.end(queued["job"])
        with ada.socket(queued["conversation"], language="en") as other:
            job = socket.prompt(TOO_LONG)["job"]
            japanese, english = socket.end(job), other.end(job)
    assert japanese["code"] == english["code"] == "prompt_too_long"
    assert english["message"].startswith("prompt has ")
    assert japanese["message"].endswith("トークンまでです。")
    figures = english["message"].split()[2]
    assert f"プロンプトは{figures}トークンあります" in japanese["message"]
    [(kept,)] = rows(site, "SELECT error_message FROM generation_job WHERE id = ?", UUID(job).hex)
    assert kept == english["message"]
