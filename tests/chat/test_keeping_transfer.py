"""Conversations as files, out and in."""

import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient, Client
from django.utils import timezone

from chatsite.chat import keeping, transfer
from chatsite.chat.models import Conversation, Message, Passage
from chatsite.chat.search import search
from chatsite.chat.threads import reply_text, thread
from generation.models import Job
from tests.chat.test_views import ask, begin, person, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def told() -> Conversation:
    """Two turns, the first with two replies; pinned and some days old."""
    conversation = begin(title='A "title" – ü')
    prompt, first = ask(conversation, text="one **bold** <b>")
    Job.objects.update(text="first reply")
    second = Message.objects.create(conversation=conversation, parent=prompt, role="assistant", text="second reply")
    Message.objects.create(conversation=conversation, parent=second, role="user", text="two")
    keeping.pin(conversation, True)
    at = timezone.now() - timedelta(days=3)
    Conversation.objects.filter(pk=conversation.pk).update(created_at=at, updated_at=at)
    conversation.refresh_from_db()
    assert thread(conversation)[1] != first
    return conversation


def fetched(address: str, name: str = "ada") -> str:
    answer: Any = signed_in(name).get(address)
    assert answer.status_code == 200
    return b"".join(answer.streaming_content).decode()


def send(content: str | bytes, name: str = "ada") -> Any:
    file = SimpleUploadedFile("export.json", content.encode() if isinstance(content, str) else content)
    return signed_in(name).post("/conversations/import/", {"file": file})


def tree(conversation: Conversation) -> list[Any]:
    """What it says and how it hangs together, without ids."""
    messages = list(conversation.messages.all())
    places = {message.pk: place for place, message in enumerate(messages)}
    return [(each.role, reply_text(each), each.created_at, places.get(each.parent_id)) for each in messages]


def exported(**fields: Any) -> dict[str, Any]:
    message = {"id": "1", "parent": None, "role": "user", "text": "x", "created_at": "2026-01-01T00:00:00Z"}
    conversation = {
        "title": "T",
        "created_at": "2026-01-01T00:00:00+02:00",
        "updated_at": "2026-01-02T00:00:00Z",
        "pinned": False,
        "messages": [message],
    }
    return {"format": "tokenline-conversations", "version": 1, "conversations": [conversation], **fields}


def test_it_exports_the_shown_branch_as_markdown() -> None:
    conversation = told()
    text = fetched(f"{conversation.get_absolute_url()}export/markdown/")
    assert text == ('# A "title" – ü\n\n## You\n\none **bold** <b>\n\n## Reply\n\nsecond reply\n\n## You\n\ntwo\n')


def test_it_takes_in_what_it_exported_under_new_ids() -> None:
    old = told()
    content = fetched("/conversations/export/json/")
    assert send(content, "eve").json() == {"conversations": 1}
    new = Conversation.objects.get(user=person("eve"))
    assert new.pk != old.pk
    assert (new.title, new.created_at, new.updated_at) == (old.title, old.created_at, old.updated_at)
    assert new.pinned_at is not None
    assert tree(new) == tree(old)
    assert not set(new.messages.values_list("pk")) & set(old.messages.values_list("pk"))
    assert [each.conversation for each in search(person("eve").pk, "second reply")[0]] == [new]
    assert fetched(f"{new.get_absolute_url()}export/markdown/", "eve").startswith('# A "title"')


def test_it_exports_one_and_all_as_files_with_a_name() -> None:
    conversation = told()
    begin(title="Other")
    one = signed_in().get(f"{conversation.get_absolute_url()}export/json/")
    assert one["Content-Disposition"].startswith("attachment; ")
    assert "a-title-%C3%BC.json" in one["Content-Disposition"]
    assert len(json.loads(fetched(f"{conversation.get_absolute_url()}export/json/"))["conversations"]) == 1
    assert len(json.loads(fetched("/conversations/export/json/"))["conversations"]) == 2
    assert fetched("/conversations/export/markdown/").count("\n---\n") == 1
    assert json.loads(fetched("/conversations/export/json/", "eve"))["conversations"] == []


def test_it_streams_on_the_server_that_people_use() -> None:
    conversation = told()
    client = AsyncClient()
    client.force_login(person(), backend="django.contrib.auth.backends.ModelBackend")

    async def read() -> bytes:
        answer: Any = await client.get(f"{conversation.get_absolute_url()}export/json/")
        assert answer.is_async
        return b"".join([piece async for piece in answer.streaming_content])

    assert len(json.loads(async_to_sync(read)())["conversations"]) == 1


def test_it_exports_nothing_of_others_and_no_unknown_kind() -> None:
    conversation = told()
    for kind in ("json", "markdown"):
        assert signed_in("eve").get(f"{conversation.get_absolute_url()}export/{kind}/").status_code == 404
    assert signed_in().get(f"{conversation.get_absolute_url()}export/pdf/").status_code == 404
    assert signed_in().get("/conversations/export/pdf/").status_code == 404
    assert Client().get("/conversations/export/json/").status_code == 302


def changed(message: dict[str, Any] | None = None, **conversation: Any) -> dict[str, Any]:
    file = exported()
    file["conversations"][0]["messages"][0] |= message or {}
    file["conversations"][0] |= conversation
    return file


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no export"),
        (exported(format="other"), "no export"),
        (exported(version=2), "version is 2"),
        (exported(conversations={}), "no list"),
        (exported(conversations=[1]), "Conversation 1 is no object"),
        (changed(title=1), "`title` of conversation 1"),
        (changed(title="x" * 201), "201 characters"),
        (changed(created_at="yesterday"), "no date"),
        (changed(created_at="2026-01-01T00:00:00"), "zone"),
        (changed(created_at="0001-01-01T00:00:00+14:00"), "date"),
        (changed(updated_at="9999-01-01T00:00:00Z"), "out of range"),
        (changed(pinned="yes"), "`pinned`"),
        (changed(messages=None), "no list"),
        (changed({"id": 5}), "`id` of message 1 of conversation 1"),
        (changed({"role": "system"}), "neither user nor assistant"),
        (changed({"role": ["user"]}), "neither user nor assistant"),
        (changed({"role": "assistant"}), "no prompt"),
        (changed({"parent": "1"}), "no earlier message"),
        (changed({"parent": ["1"]}), "no earlier message"),
        (changed({"text": None}), "`text`"),
        (changed(messages=exported()["conversations"][0]["messages"] * 2), "not its own"),
    ],
)
def test_it_takes_in_nothing_of_a_file_with_a_fault(content: Any, words: str) -> None:
    if isinstance(content, dict):
        if content["conversations"]:
            content["conversations"] = [*exported()["conversations"], *content["conversations"]]
            words = words.replace("onversation 1", "onversation 2")
        content = json.dumps(content)
    answer = send(content)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert not Conversation.objects.exists()
    assert not Message.objects.exists()


def test_it_takes_in_no_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MAX_BYTES", 100)
    answer = send("x" * 101)
    assert answer.status_code == 413
    assert "101 bytes; 100 are allowed" in answer.json()["error"]
    monkeypatch.undo()
    monkeypatch.setattr(transfer, "MAX_MESSAGES", 1)
    assert (
        "more than 1 messages"
        in send(json.dumps(exported(conversations=exported()["conversations"] * 2))).json()["error"]
    )
    assert signed_in().post("/conversations/import/").status_code == 400
    assert not Conversation.objects.exists()


def test_it_takes_in_nothing_where_the_database_refuses_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Passage.objects, "bulk_create", refuse)
    with pytest.raises(RuntimeError):
        transfer.take_in(person(), json.dumps(exported()).encode())
    assert not Conversation.objects.exists()
    assert not Message.objects.exists()


def test_it_keeps_the_order_of_messages_of_one_moment_and_what_no_database_holds() -> None:
    at = "2026-01-01T00:00:00Z"
    messages = [
        {"id": str(number), "parent": str(number - 1) if number else None, "text": f"{number}\0\ud800"}
        | {"role": "assistant" if number % 2 else "user", "created_at": at}
        for number in range(8)
    ]
    assert send(json.dumps(changed(messages=messages))).json() == {"conversations": 1}
    shown = [message.text for message in thread(Conversation.objects.get())]
    assert shown == [f"{number}\ufffd\ufffd" for number in range(8)]


def test_it_takes_nothing_in_without_a_token() -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(person(), backend="django.contrib.auth.backends.ModelBackend")
    file = SimpleUploadedFile("export.json", json.dumps(exported()).encode())
    assert strict.post("/conversations/import/", {"file": file}).status_code == 403
    assert not Conversation.objects.exists()
