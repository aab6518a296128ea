"""Branches, cleared contexts and thumbs: what is stored, what the model gets to read, what the page shows."""

import uuid
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from chatsite.chat import conversations
from chatsite.chat.branches import Tree
from chatsite.chat.conversations import Asked
from chatsite.chat.history import entries
from chatsite.chat.models import MAX_WORD_LENGTH, Conversation, Feedback, Message
from generation.admission import Refused
from generation.models import Job
from tests.chat.test_views import add_part, ask, begin, page, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


def asked() -> Asked:
    return Asked(client_id=uuid.uuid4(), model=None, params={})


def end(job: Job, text: str, **fields: Any) -> Message:
    """The job's reply has this text and is finished; the reply."""
    Job.objects.filter(pk=job.pk).update(state=Job.State.FINISHED, text=text, **fields)
    return job.reply_part.message


def say(conversation: Conversation, text: str, parent: Message | None) -> tuple[Message, Job]:
    """Ask through the conversation and have it answered with the same words, louder; the reply and its job."""
    above = parent.pk if parent else None
    job = conversations.prompt(conversation.user, conversation.pk, text, above, asked())
    return end(job, text.upper()), job


def read(job: Job) -> list[str]:
    """What the model gets to read."""
    return [message["content"] for message in Job.objects.get(pk=job.pk).messages]


def shown(conversation: Conversation) -> list[tuple[str, int, int]]:
    """Each message that the page shows: its words, and which of how many versions it is."""
    conversation.refresh_from_db()
    return [(entry.text or "".join(entry.blocks).strip(), entry.number, entry.count) for entry in entries(conversation)]


def post(conversation: Conversation, message: Message, what: str, name: str = "ada", **fields: str) -> Any:
    return signed_in(name).post(f"/c/{conversation.pk}/{message.pk}/{what}/", fields)


# Branches.


def test_another_reply_stands_beside_the_first_and_is_shown() -> None:
    conversation = begin()
    first, _ = say(conversation, "one", None)
    job = conversations.regenerate(conversation.user, conversation.pk, first.pk, asked())
    end(job, "UNO")
    assert read(job) == ["one"]
    assert shown(conversation) == [("one", 1, 1), ("<p>UNO</p>", 2, 2)]


def test_an_edited_prompt_is_a_branch_that_reads_only_what_stands_above_it() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    two, _ = say(conversation, "two", one)
    say(conversation, "three", two)
    _, job = say(conversation, "deux", one)
    assert read(job) == ["one", "ONE", "deux"]
    assert shown(conversation)[2:] == [("deux", 2, 2), ("<p>DEUX</p>", 1, 1)]
    _, job = say(conversation, "uno", None)
    assert read(job) == ["uno"]
    assert shown(conversation) == [("uno", 2, 2), ("<p>UNO</p>", 1, 1)]


def test_stepping_shows_a_version_down_to_its_newest_leaf_and_is_remembered() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    two, _ = say(conversation, "two", one)
    say(conversation, "three", two)
    newer, _ = say(conversation, "trois", two)
    other, _ = say(conversation, "uno", None)
    answer = post(conversation, other.parent, "step", to="previous")  # type: ignore[arg-type]
    assert answer.status_code == 200
    assert "trois" in answer.content.decode() and "uno" not in answer.content.decode()
    assert 'id="sidebar"' not in answer.content.decode()
    words = [text for text, _, _ in shown(conversation)]
    assert words == ["one", "<p>ONE</p>", "two", "<p>TWO</p>", "trois", "<p>TROIS</p>"]
    assert ">trois<" in page(conversation) and ">uno<" not in page(conversation)
    # What is asked from there is shown with it.
    _, job = say(conversation, "four", newer)
    assert read(job) == ["one", "ONE", "two", "TWO", "trois", "TROIS", "four"]
    assert [text for text, _, _ in shown(conversation)][-1] == "<p>FOUR</p>"


def test_stepping_past_an_end_stays_there() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    say(conversation, "uno", None)
    for to in ("previous", "previous"):
        assert post(conversation, one.parent, "step", to=to).status_code == 200  # type: ignore[arg-type]
    assert shown(conversation)[0] == ("one", 1, 2)
    assert post(conversation, one, "step", to="sideways").status_code == 400


def test_a_reply_on_an_older_branch_goes_on_there() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    two, job = say(conversation, "two", one)
    end(job, "TW", finish_reason="length")
    say(conversation, "deux", one)
    more = conversations.go_on(conversation.user, conversation.pk, two.pk, asked())
    end(more, "O")
    assert read(more) == ["one", "ONE", "two", "TW"]
    assert shown(conversation)[2:] == [("two", 1, 2), ("<p>TWO</p>", 1, 1)]


def test_a_conversation_of_before_shows_its_newest_branch() -> None:
    conversation = begin()
    ask(conversation, text="old")
    _, newest = ask(conversation, text="new")
    assert conversation.shown_leaf is None
    assert Tree(conversation).shown_leaf() == newest.pk


def test_what_a_server_of_before_added_below_the_shown_branch_is_shown() -> None:
    """Such a server knows nothing of `shown_leaf`."""
    conversation = begin()
    one, _ = say(conversation, "one", None)
    ask(conversation, parent=one, text="added")
    assert shown(conversation)[2][0] == "added"


# The context.


def test_a_cleared_context_is_not_read_by_what_is_asked_below_it() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    assert post(conversation, one, "context", cleared="1").status_code == 204
    assert " data-cleared" in page(conversation)
    two, job = say(conversation, "two", one)
    assert read(job) == ["two"]
    three, job = say(conversation, "three", two)
    assert read(job) == ["two", "TWO", "three"]
    # The line stands for edits, other replies and going on below it too.
    again = conversations.regenerate(conversation.user, conversation.pk, two.pk, asked())
    assert read(again) == ["two"]
    Job.objects.filter(pk=job.pk).update(finish_reason="length")
    more = conversations.go_on(conversation.user, conversation.pk, three.pk, asked())
    assert read(more) == ["two", "TWO", "three", "THREE"]
    # Above it nothing is different.
    above = conversations.regenerate(conversation.user, conversation.pk, one.pk, asked())
    end(above, "UNO")
    _, job = say(conversation, "zwei", above.reply_part.message)
    assert read(job) == ["one", "UNO", "zwei"]


def test_clearing_is_undone_until_the_next_prompt() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    post(conversation, one, "context", cleared="1")
    assert post(conversation, one, "context", cleared="0").status_code == 204
    two, job = say(conversation, "two", one)
    assert read(job) == ["one", "ONE", "two"]
    post(conversation, two, "context", cleared="1")
    say(conversation, "three", two)
    for cleared in ("0", "1"):
        assert post(conversation, two, "context", cleared=cleared).status_code == 409
    two.refresh_from_db()
    assert two.context_cleared
    assert post(conversation, two, "context", cleared="perhaps").status_code == 400


# Thumbs.


def test_a_thumb_is_kept_changed_and_taken_back() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    assert post(conversation, one, "feedback", verdict="up").status_code == 204
    assert 'data-verdict="up"' in page(conversation)
    assert post(conversation, one, "feedback", verdict="down", word=" <wrong>\0 ").status_code == 204
    assert [(each.verdict, each.word) for each in Feedback.objects.all()] == [("down", "<wrong>\ufffd")]
    assert 'data-verdict="down" data-word="&lt;wrong&gt;\ufffd"' in page(conversation)
    assert post(conversation, one, "feedback", verdict="").status_code == 204
    assert not Feedback.objects.exists()


def test_a_wrong_thumb_is_refused_with_the_reason() -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    assert post(conversation, one, "feedback", verdict="sideways").status_code == 400
    long = post(conversation, one, "feedback", verdict="up", word="x" * (MAX_WORD_LENGTH + 1))
    assert (long.status_code, long.content) == (400, b"The word has 501 characters; at most 500 fit.")
    assert post(conversation, one.parent, "feedback", verdict="up").status_code == 404  # type: ignore[arg-type]
    assert not Feedback.objects.exists()


def test_staff_read_thumbs_with_their_conversation_and_job() -> None:
    conversation = begin()
    one, job = say(conversation, "one", None)
    two, _ = say(conversation, "two", one)
    post(conversation, one, "feedback", verdict="down", word="<b>wrong</b>")
    post(conversation, two, "feedback", verdict="up", word="lovely")
    client = Client()
    root = get_user_model().objects.create_superuser("root", password="x")
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    shown = client.get("/admin/chat/feedback/?verdict=down").content.decode()
    assert "&lt;b&gt;wrong&lt;/b&gt;" in shown and "lovely" not in shown
    assert f"/admin/generation/job/{job.pk}/change/" in shown
    assert f"/admin/chat/conversation/{conversation.pk}/change/" in shown
    feedback = Feedback.objects.get(verdict="down")
    assert "ONE" in client.get(f"/admin/chat/feedback/{feedback.pk}/change/").content.decode()


# Copying.


def test_a_reply_is_given_as_it_is_stored() -> None:
    conversation = begin()
    one, _ = say(conversation, "**bold** <b> ü", None)
    Job.objects.filter(reply_part__message=one).update(text="**a** <b>\n")
    add_part(one)
    Job.objects.filter(reply_part__message=one, text="").update(text="- ü")
    answer = signed_in().get(f"/c/{conversation.pk}/{one.pk}/markdown/")
    assert answer.content.decode() == "**a** <b>\n- ü"
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"


# Whose it is.

ACTS = [("step", {"to": "next"}), ("context", {"cleared": "1"}), ("feedback", {"verdict": "up"}), ("markdown", {})]


@pytest.mark.parametrize(("what", "fields"), ACTS)
def test_another_persons_message_is_like_none(what: str, fields: dict[str, str]) -> None:
    """knoxiboy/DoubtDesk#1338: whoever knew an id could read and drive another person's chat."""
    conversation, own = begin(), begin("eve")
    one, _ = say(conversation, "secret", None)
    client = signed_in("eve")
    answers = []
    for address in (
        f"/c/{conversation.pk}/{one.pk}/{what}/",
        f"/c/{own.pk}/{one.pk}/{what}/",
        f"/c/{uuid.uuid4()}/{uuid.uuid4()}/{what}/",
    ):
        answer = client.post(address, fields) if fields else client.get(address)
        answers.append((answer.status_code, answer.content))
    assert answers[0][0] == 404
    assert answers[0] == answers[1] == answers[2]
    one.refresh_from_db()
    assert not one.context_cleared
    assert not Feedback.objects.exists()


@pytest.mark.parametrize(("what", "fields"), ACTS[:3])
def test_nothing_is_changed_without_a_post_that_the_page_sent(what: str, fields: dict[str, str]) -> None:
    conversation = begin()
    one, _ = say(conversation, "one", None)
    address = f"/c/{conversation.pk}/{one.pk}/{what}/"
    assert signed_in().get(address, fields).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(conversation.user, backend="django.contrib.auth.backends.ModelBackend")
    assert strict.post(address, fields).status_code == 403
    assert Client().post(address, fields)["Location"].startswith("/accounts/login/")


def test_a_message_of_ones_other_conversation_is_no_parent_here() -> None:
    here, there = begin(), begin()
    one, _ = say(there, "one", None)
    with pytest.raises(Refused):
        say(here, "two", one)
    assert post(here, one, "step", to="next").status_code == 404
