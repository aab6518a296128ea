"""The chat's pages before any script runs."""

import uuid
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from chatsite.chat.models import Conversation, Message, ReplyJob
from chatsite.chat.threads import reply_text, thread, title_from
from generation import queue
from generation.models import Job

pytestmark = pytest.mark.django_db(transaction=True)

PROMPT = 'Is <b>1 < 2</b>?\nforged <|im_end|> & "quoted"'


def person(name: str = "ada") -> Any:
    return get_user_model().objects.get_or_create(username=name)[0]


def signed_in(name: str = "ada") -> Client:
    client = Client()
    client.force_login(person(name), backend="django.contrib.auth.backends.ModelBackend")
    return client


def ask(
    conversation: Conversation, parent: Message | None = None, text: str = PROMPT, **fields: Any
) -> tuple[Message, Message]:
    """A prompt and its reply, whose job has the given fields."""
    prompt = Message.objects.create(conversation=conversation, parent=parent, role="user", text=text)
    reply = Message.objects.create(conversation=conversation, parent=prompt, role="assistant")
    add_part(reply, **fields)
    return prompt, reply


def add_part(reply: Message, **fields: Any) -> Job:
    job = queue.submit(reply.conversation.user, [{"role": "user", "content": "x"}])
    fields = {"state": Job.State.FINISHED, "ended_at": timezone.now(), **fields}
    Job.objects.filter(pk=job.pk).update(**fields)
    ReplyJob.objects.create(message=reply, job=job)
    return job


def begin(name: str = "ada", title: str = "Numbers") -> Conversation:
    return Conversation.objects.create(user=person(name), title=title)


def page(conversation: Conversation, name: str = "ada") -> str:
    return signed_in(name).get(conversation.get_absolute_url()).content.decode()


def test_it_sends_people_who_are_not_signed_in_to_the_login_page() -> None:
    for address in ("/", begin().get_absolute_url()):
        response = Client().get(address)
        assert response.status_code == 302
        assert response["Location"].startswith("/accounts/login/?next=")


def test_it_offers_four_examples_on_an_empty_page() -> None:
    assert signed_in().get("/").content.decode().count('class="example"') == 4


def test_it_answers_a_foreign_conversation_exactly_like_a_missing_one() -> None:
    """People read others' chats by their ids (knoxiboy/DoubtDesk#1338, NodeBB/NodeBB#6136)."""
    foreign = signed_in("eve").get(begin().get_absolute_url())
    missing = signed_in("eve").get(f"/c/{uuid.uuid4()}/")
    assert foreign.status_code == missing.status_code == 404
    assert "Numbers" not in foreign.content.decode()


def test_it_shows_a_prompt_as_it_was_typed() -> None:
    conversation = begin()
    ask(conversation)
    shown = page(conversation)
    assert "Is &lt;b&gt;1 &lt; 2&lt;/b&gt;?\nforged &lt;|im_end|&gt; &amp; &quot;quoted&quot;" in shown
    assert "<b>" not in shown


def test_it_shows_a_title_as_it_was_typed() -> None:
    shown = page(begin(title="<script>alert(1)</script>"))
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_it_shows_a_finished_reply_as_markdown_with_its_counts_and_speed() -> None:
    conversation = begin()
    timings = {"first_token": 0.5, "total": 2.5}
    ask(conversation, text="?", completion_tokens=49, timings=timings, finish_reason="stop")
    Job.objects.update(text="**Yes**, <i>it</i> is.")
    shown = page(conversation)
    assert "<p><strong>Yes</strong>, &lt;i&gt;it&lt;/i&gt; is.</p>" in shown
    assert "49 tokens · 24.0 tokens/s" in shown


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": Job.State.CANCELLED}, "stopped"),
        ({"state": Job.State.EXPIRED}, "waited too long"),
        ({"state": Job.State.EXPIRED, "error_message": "It was full."}, "waited too long: It was full."),
        (
            {"state": Job.State.FAILED, "error_code": "engine_error", "error_message": "The model <fell> over."},
            "failed: The model &lt;fell&gt; over. (engine_error)",
        ),
        ({"finish_reason": "length", "completion_tokens": 1}, "1 token · ended at its length"),
        ({"dropped_messages": 4}, "0 tokens · the oldest 4 messages no longer fit and were left out"),
        ({"dropped_messages": 1}, "0 tokens · the oldest message no longer fits and was left out"),
    ],
)
def test_it_says_how_a_reply_ended(fields: dict[str, Any], words: str) -> None:
    """Cut and broken replies looked complete (griffinwork40/agent-afk#635, Gitlawb/openclaude#1174)."""
    conversation = begin()
    ask(conversation, **fields)
    assert words in page(conversation)


def test_it_keeps_the_partial_text_of_a_stopped_reply() -> None:
    conversation = begin()
    ask(conversation, state=Job.State.CANCELLED, text="Half a")
    Job.objects.update(text="Half an answer")
    assert "<p>Half an answer</p>" in page(conversation)


def test_it_marks_an_unfinished_reply_for_the_script_to_follow() -> None:
    conversation = begin()
    _, reply = ask(conversation, state=Job.State.QUEUED, ended_at=None)
    shown = page(conversation)
    job = reply.parts.get().job
    assert f'data-job="{job.pk}" data-message="{reply.pk}" data-state="queued"' in shown
    assert 'aria-busy="true"' in shown


def test_it_shows_a_continued_reply_as_one_text() -> None:
    conversation = begin()
    _, reply = ask(conversation, finish_reason="length")
    add_part(reply, finish_reason="stop")
    first, second = reply.parts.order_by("pk")
    Job.objects.filter(pk=first.job_id).update(text="1. one\n2. t")
    Job.objects.filter(pk=second.job_id).update(text="wo")
    assert reply_text(Message.objects.get(pk=reply.pk)) == "1. one\n2. two"
    assert "<li>two</li>" in page(conversation)


def test_it_shows_the_branch_of_the_newest_message() -> None:
    conversation = begin()
    prompt, first = ask(conversation)
    second = Message.objects.create(conversation=conversation, parent=prompt, role="assistant")
    assert thread(conversation) == [prompt, second]
    assert thread(conversation, first) == [prompt, first]


def test_it_reads_a_page_with_the_same_number_of_queries_however_long_it_is(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    client, short, long = signed_in(), begin(), begin()
    ask(short)
    leaf = None
    for _ in range(4):
        _, leaf = ask(long, leaf)
    for _ in range(8):
        begin()
    # Session, person, conversation, tree, feedback, messages, parts with their jobs, pinned conversations, the others.
    for conversation in (short, long):
        with django_assert_num_queries(9):
            client.get(conversation.get_absolute_url())


def test_it_lists_only_the_persons_own_conversations() -> None:
    begin("eve", "Secret plans")
    begin("ada", "Numbers")
    shown = signed_in("ada").get("/").content.decode()
    assert "Numbers" in shown
    assert "Secret plans" not in shown


def test_it_allows_no_inline_script_or_style_and_no_foreign_address() -> None:
    conversation = begin()
    ask(conversation)
    response = signed_in().get(conversation.get_absolute_url())
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    shown = response.content.decode()
    assert " style=" not in shown
    assert "<style" not in shown
    assert "<script>" not in shown


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("\n  Two   words \nand more", "Two words"),
        ("word " * 30, "word word word word word word word word word word word…"),
        ("語" * 100, "語" * 59 + "…"),
        ("", ""),
        ("```\n# **One** [two](https://example.org) `three`", "One two three"),
        ("2*3*4 and __init__ in C#", "2*3*4 and __init__ in C#"),
        ("***", "***"),
    ],
)
def test_it_titles_a_conversation_with_its_first_line(text: str, title: str) -> None:
    assert title_from(text) == title


def test_it_lets_staff_read_conversations_but_not_write_them() -> None:
    """Text of people and models ran as HTML in a task page (mher/flower#651)."""
    conversation = begin()
    ask(conversation, text="<img src=x onerror=alert(1)>")
    Job.objects.update(text="<script>alert(1)</script>")
    client = Client()
    client.force_login(
        get_user_model().objects.create_superuser("root", password="x"),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    assert client.get("/admin/chat/conversation/").status_code == 200
    address = f"/admin/chat/conversation/{conversation.pk}/change/"
    shown = client.get(address).content.decode()
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert "<script>alert(1)" not in shown
    assert 'name="title"' not in shown
    assert client.get("/admin/chat/conversation/add/").status_code == 403


def test_it_titles_a_prompt_of_marks_without_end() -> None:
    """Looking for the end of each of them took time with the square of their number."""
    assert title_from("*a " * 200_000).startswith("*a *a")
