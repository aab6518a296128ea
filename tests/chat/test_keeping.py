"""The list of conversations and what people do with them: rename, pin, delete, restore."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import DjangoAssertNumQueries

from chatsite.chat import keeping
from chatsite.chat.models import Conversation, Message, Passage, ReplyJob, TitleJob
from chatsite.chat.sidebar import PAGE, BadMark, Page, sidebar
from generation import instants, queue
from generation.delivery import stream
from generation.models import Job, Priority
from tests.chat.test_views import ask, begin, person, signed_in
from tests.generation.rows import make_worker

pytestmark = pytest.mark.django_db(transaction=True)

ACTIONS = ("rename", "pin", "delete", "restore")


def post(conversation: Conversation, action: str, name: str = "ada", **fields: str) -> Any:
    return signed_in(name).post(f"{conversation.get_absolute_url()}{action}/", fields)


def aged(conversation: Conversation, days: float) -> Conversation:
    Conversation.objects.filter(pk=conversation.pk).update(updated_at=timezone.now() - timedelta(days=days))
    return conversation


def many(number: int) -> None:
    """Conversations of ada, one a minute, and as many of somebody else."""
    now = timezone.now()
    rows = [Conversation(user=person(name), title=str(each)) for each in range(number) for name in ("ada", "eve")]
    Conversation.objects.bulk_create(rows)
    for place, each in enumerate(rows):
        each.updated_at = now - timedelta(minutes=place // 2)
    Conversation.objects.bulk_update(rows, ["updated_at"], batch_size=100)


def titles(page: Page) -> list[str]:
    return [each.title for group in page.groups for each in group.conversations]


def delete_long_ago(conversation: Conversation) -> None:
    Conversation.with_deleted.filter(pk=conversation.pk).update(deleted_at=instants.now() - timedelta(minutes=2))


def test_it_lists_conversations_by_date_with_pinned_ones_first() -> None:
    for days, title in [(400, "old"), (3, "week"), (1, "yesterday"), (0, "today"), (500, "pinned")]:
        aged(begin(title=title), days)
    keeping.pin(Conversation.objects.get(title="pinned"), True)
    groups = sidebar(person().pk).groups
    month = f"{timezone.localdate() - timedelta(days=400):%B %Y}"
    assert [group.name for group in groups] == ["Pinned", "Today", "Yesterday", "Previous 7 days", month]
    assert titles(Page(groups, "")) == ["pinned", "today", "yesterday", "week", "old"]


def test_it_gives_each_conversation_once_over_all_pages() -> None:
    many(PAGE * 2 + 3)
    # Of the same moment: their order must hold over the pages too.
    Conversation.objects.filter(user=person()).update(updated_at=timezone.now())
    seen, mark = [], ""
    for _ in range(3):
        page = sidebar(person().pk, mark)
        seen += titles(page)
        mark = page.more
    assert mark == ""
    assert sorted(map(int, seen)) == list(range(PAGE * 2 + 3))


@pytest.mark.parametrize("number", [1, PAGE * 3])
def test_it_lists_with_the_same_number_of_queries_however_many_there_are(
    number: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    many(number)
    ada = person().pk
    with django_assert_num_queries(2):
        page = sidebar(ada)
    if page.more:
        with django_assert_num_queries(1):
            sidebar(ada, page.more)


@contextmanager
def plans() -> Iterator[list[str]]:
    """How each SELECT from conversations is done on SQLite."""
    found: list[str] = []

    def look(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.startswith("SELECT") and '"chat_conversation"' in sql:
            steps = connection.connection.execute("EXPLAIN QUERY PLAN " + sql.replace("%s", "?"), params)
            found.extend(step[3] for step in steps.fetchall())
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        yield found


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL scans a table as small as this one")
def test_it_reads_no_more_of_the_list_than_a_page_of_it() -> None:
    many(300)
    with plans() as found:
        page = sidebar(person().pk)
        sidebar(person().pk, page.more)
        keeping.sweep()
    assert len(found) == 4
    assert all("USING INDEX" in step or "USING COVERING INDEX" in step for step in found), found
    assert not any("TEMP B-TREE" in step for step in found), found


@pytest.mark.parametrize("mark", ["x", "~", "2026-01-01~x", f"2026-01-01T00:00:00~{uuid.UUID(int=1)}", "\0~\0"])
def test_it_refuses_a_mark_that_it_never_gave(mark: str) -> None:
    with pytest.raises(BadMark):
        sidebar(person().pk, mark)
    assert signed_in().get("/conversations/", {"after": mark}).status_code == 400


@given(st.text())
def test_it_refuses_any_text_as_a_mark(text: str) -> None:
    with pytest.raises(BadMark):
        sidebar(1, "m" + text)


def test_it_sends_the_next_page_as_a_part_of_the_list() -> None:
    many(PAGE + 1)
    shown = signed_in().get("/conversations/", {"after": sidebar(person().pk).more}).content.decode()
    assert shown.count("data-conversation=") == 1
    assert "<html" not in shown
    assert "older" not in shown


def test_it_renames_in_one_line_and_for_good() -> None:
    conversation = begin()
    answer = post(conversation, "rename", title="  <b>Prime</b>\n numbers ")
    assert answer.json() == {"title": "<b>Prime</b> numbers"}
    conversation.refresh_from_db()
    assert (conversation.title, conversation.title_edited) == ("<b>Prime</b> numbers", True)


@pytest.mark.parametrize(("title", "words"), [("", "needs a character"), ("\u200b ", "needs"), ("x" * 201, "201")])
def test_it_refuses_a_title_that_nobody_could_read(title: str, words: str) -> None:
    conversation = begin()
    answer = post(conversation, "rename", title=title)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    conversation.refresh_from_db()
    assert (conversation.title, conversation.title_edited) == ("Numbers", False)


def test_it_pins_and_unpins() -> None:
    conversation = begin()
    assert post(conversation, "pin", pinned="1").json() == {"pinned": True}
    assert [group.name for group in sidebar(person().pk).groups] == ["Pinned"]
    assert post(conversation, "pin", pinned="0").json() == {"pinned": False}
    assert [group.name for group in sidebar(person().pk).groups] == ["Today"]


@pytest.mark.parametrize("action", ACTIONS)
def test_it_answers_for_anothers_conversation_as_for_none(action: str) -> None:
    conversation = begin()
    foreign = post(conversation, action, "eve", title="Mine", pinned="1")
    missing = signed_in("eve").post(f"/c/{uuid.uuid4()}/{action}/", {"title": "Mine", "pinned": "1"})
    assert foreign.status_code == missing.status_code == 404
    assert foreign.content == missing.content
    conversation.refresh_from_db()
    assert (conversation.title, conversation.pinned_at, conversation.deleted_at) == ("Numbers", None, None)


@pytest.mark.parametrize("action", ACTIONS)
def test_it_changes_nothing_without_a_token_a_post_or_a_session(action: str) -> None:
    address = f"{begin().get_absolute_url()}{action}/"
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(person(), backend="django.contrib.auth.backends.ModelBackend")
    assert strict.post(address).status_code == 403
    assert signed_in().get(address).status_code == 405
    assert Client().post(address).status_code == 302


def test_it_shows_a_deleted_conversation_nowhere_until_it_is_restored() -> None:
    conversation = begin()
    ask(conversation, text="palimpsest")
    client = signed_in()
    assert post(conversation, "delete").status_code == 200
    for address in ("/", "/search/?q=palimpsest", "/conversations/export/json/"):
        answer = client.get(address)
        shown = b"".join(answer) if answer.streaming else answer.content  # type: ignore[arg-type]
        assert str(conversation.pk).encode() not in shown
        assert b"Numbers" not in shown
    assert client.get(conversation.get_absolute_url()).status_code == 404
    assert post(conversation, "rename", title="x").status_code == 404
    assert post(conversation, "restore").status_code == 200
    assert client.get(conversation.get_absolute_url()).status_code == 200


def test_it_stops_the_replies_of_a_deleted_conversation() -> None:
    conversation = begin()
    _, waiting = ask(conversation, state=Job.State.QUEUED, ended_at=None)
    _, running = ask(conversation, state=Job.State.RUNNING, ended_at=None, worker=make_worker(), epoch=1)
    post(conversation, "delete")
    assert waiting.parts.get().job.state == Job.State.CANCELLED
    assert running.parts.get().job.cancel_requested_at is not None


def test_it_deletes_for_good_after_a_minute_and_leaves_no_text() -> None:
    conversation, other = begin(), begin()
    _, reply = ask(conversation, error_traceback="said: secret")
    _, kept = ask(other)
    Job.objects.update(text="secret", messages=[{"role": "user", "content": "secret"}], completion_tokens=7)
    title = queue.submit(person(), [{"role": "user", "content": "secret"}], priority=Priority.BATCH)
    TitleJob.objects.create(conversation=conversation, job=title)
    Job.objects.filter(pk=title.pk).update(state=Job.State.FINISHED)
    Job.objects.update(ended_at=instants.now() - timedelta(minutes=1))
    job = reply.parts.get().job
    client = stream.sync_client()
    client.xadd(stream.tokens_key(job.pk), {"i": "1", "t": "secret"})
    post(conversation, "delete")
    assert keeping.sweep() == 0
    delete_long_ago(conversation)
    assert keeping.sweep() == 1
    assert set(Conversation.with_deleted.all()) == {other}
    assert set(Message.objects.values_list("conversation", flat=True)) == {other.pk}
    assert not Passage.objects.filter(conversation=conversation.pk).exists()
    for ended in Job.objects.filter(pk__in=[job.pk, title.pk]):
        assert (ended.messages, ended.text, ended.error_traceback) == ([], "", "")
    job.refresh_from_db()
    assert job.completion_tokens == 7  # figures stay
    assert not client.exists(stream.tokens_key(job.pk))
    assert ReplyJob.objects.get(message=kept).job.text == "secret"


def test_it_waits_for_the_end_of_what_runs_before_it_deletes_for_good() -> None:
    conversation = begin()
    _, reply = ask(conversation, state=Job.State.RUNNING, ended_at=None, worker=make_worker(), epoch=1)
    delete_long_ago(conversation)
    assert keeping.sweep() == 0
    job = reply.parts.get().job
    assert job.cancel_requested_at is not None
    queue.end(job.pk, 1, Job.State.CANCELLED, text="half a")
    # Its end may not have been written into the stream yet.
    assert keeping.sweep() == 0
    Job.objects.update(ended_at=instants.now() - timedelta(minutes=1))
    assert keeping.sweep() == 1


def test_it_sweeps_nothing_that_was_restored() -> None:
    conversation = begin()
    delete_long_ago(conversation)
    post(conversation, "restore")
    assert keeping.sweep() == 0
    assert Conversation.objects.filter(pk=conversation.pk).exists()
