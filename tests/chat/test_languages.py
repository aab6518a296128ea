"""Pages in the reader's language: the browser's own, until another one is chosen."""

import asyncio
import json
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.translation import override

from chatsite.chat.html_reply import HtmlReply
from chatsite.chat.sidebar import sidebar
from generation import quotas
from generation.models import Job, Quota
from tests.chat.test_views import ask, begin, person, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

JAPANESE = {"accept-language": "ja,en;q=0.5"}


def shown(client: Client, address: str = "/", **headers: str) -> str:
    return client.get(address, headers=headers).content.decode()


def test_it_speaks_the_browsers_language() -> None:
    text = shown(signed_in(), **JAPANESE)
    assert '<html lang="ja">' in text
    assert "何を聞いてみますか？" in text


@pytest.mark.parametrize("language", ["", "en-GB", "tlh", "x" * 600, "ja" * 200 + ";q="])
def test_it_speaks_english_to_whoever_asks_for_nothing_that_it_knows(language: str) -> None:
    text = shown(signed_in(), **{"accept-language": language})
    assert '<html lang="en">' in text
    assert "What would you like to ask?" in text


def test_a_choice_counts_before_the_browsers_language_and_is_kept() -> None:
    client = signed_in()
    chosen = client.post("/language/", {"language": "en"}, headers={"referer": "http://testserver/search/", **JAPANESE})
    assert (chosen.status_code, chosen["Location"]) == (302, "http://testserver/search/")
    assert client.cookies["django_language"]["max-age"] == 365 * 24 * 3600
    assert '<html lang="en">' in shown(client, **JAPANESE)
    client.post("/language/", {"language": "ja"})
    assert '<html lang="ja">' in shown(client)


def test_the_languages_are_offered_before_and_after_signing_in() -> None:
    for text in (shown(Client(), "/accounts/login/", **JAPANESE), shown(signed_in(), **JAPANESE)):
        offered = re.findall(
            r'<button [^>]*name="language" value="(\w+)" lang="\1"( aria-current="true")?>(.+?)<', text
        )
        assert offered == [("en", "", "English"), ("ja", ' aria-current="true"', "日本語")]


def test_the_scripts_texts_have_an_address_of_their_own_in_each_language() -> None:
    client = signed_in()
    addresses = [
        re.findall(r'<script src="(/catalogue/[^"]+)">', shown(client, **{"accept-language": language}))[0]
        for language in ("en", "ja")
    ]
    english, japanese = (client.get(address) for address in addresses)
    assert addresses[0] != addresses[1]
    assert json.dumps("接続が切れました。再接続します") in japanese.content.decode()
    assert "Connection lost" not in english.content.decode()
    assert "immutable" in japanese["Cache-Control"]
    assert japanese["Content-Language"] == "ja"


def test_a_page_of_another_version_gets_texts_that_no_browser_keeps() -> None:
    """While an upgrade runs its page may be answered by a process of another version."""
    other = Client().get("/catalogue/ja/0123456789ab.js")
    assert other.status_code == 200
    assert other["Cache-Control"] == "no-store"
    assert Client().get("/catalogue/xx/0123456789ab.js").status_code == 404


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": Job.State.CANCELLED}, "停止しました"),
        (
            {
                "state": Job.State.FAILED,
                "error_code": "prompt_too_long",
                "error_message": "prompt has 5,120 tokens; this model takes 4,096",
            },
            "失敗しました：プロンプトは5,120トークンあります。このモデルで扱えるのは4,096トークンまでです。（prompt_too_long）",
        ),
        (
            {
                "state": Job.State.EXPIRED,
                "error_message": "Its turn did not come within 60 s, the longest that a prompt may wait.",
            },
            "プロンプトが待てる上限の60秒以内に",
        ),
        ({"dropped_messages": 1}, "最も古い1件のメッセージは入りきらず、省かれました"),
        ({"finish_reason": "length", "completion_tokens": 2}, "2トークン · 長さの上限で終了"),
    ],
)
def test_it_says_how_a_reply_ended_in_the_readers_language(fields: dict[str, Any], words: str) -> None:
    conversation = begin()
    ask(conversation, **fields)
    assert words in shown(signed_in(), conversation.get_absolute_url(), **JAPANESE)
    kept = Job.objects.get()
    assert kept.error_message == fields.get("error_message", ""), "the row stays English, for staff"


def test_the_list_and_dates_are_in_the_readers_language() -> None:
    conversation = begin()
    old = timezone.now().replace(year=2025, month=3, day=2)
    type(conversation).objects.update(updated_at=old)
    with override("ja"):
        (group,) = sidebar(person().pk).groups
    assert (group.key, group.name) == ("March 2025", "2025年3月")
    assert "2025年3月2日" in shown(signed_in(), "/search/?q=numbers", **JAPANESE)


def test_an_export_speaks_the_readers_language_though_it_is_written_while_it_is_sent() -> None:
    conversation = begin()
    ask(conversation, text="one")
    response = signed_in().get(f"{conversation.get_absolute_url()}export/markdown/", headers=JAPANESE)
    with override("en"):
        text = b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]
    assert "## あなた\n\none" in text
    assert "## 回答" in text


def test_a_forms_errors_are_in_the_readers_language() -> None:
    wrong = {"username": "ada", "password": "wrong"}
    text = Client().post("/accounts/login/", wrong, headers=JAPANESE).content.decode()
    assert "正しいユーザー名とパスワードを入力してください" in text


def test_a_quotas_end_is_told_in_the_readers_language() -> None:
    Quota.objects.create(tokens_per_month=0)
    with override("ja"):
        told = quotas.refusal(person(), timezone.now().replace(year=2026, month=11, day=30, hour=12, minute=0))
    assert told is not None
    assert "12月1日 00:00（UTC）にリセットされます（あと1" in told


def test_the_buttons_of_a_growing_reply_are_in_its_readers_language() -> None:
    """What is sent from the hub's task, which speaks no language, is rendered too."""
    sent: list[dict[str, Any]] = []

    async def send(frame: dict[str, Any]) -> None:
        sent.append(frame)

    async def grow() -> None:
        with override("en"):
            reply = HtmlReply("", send, "ja")
            await reply.snapshot(1, "```python\nprint()\n```\n")
            await reply.end()

    asyncio.run(grow())
    assert len(sent) == 2
    assert all("コピー" in html and "Copy" not in html for frame in sent for _, html in frame["changes"])
