"""Search in one's own titles and texts."""

from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from chatsite.chat import keeping, words
from chatsite.chat.models import Conversation, Message, Passage, ReplyJob
from chatsite.chat.search import PAGE, search
from generation import queue
from generation.models import Job
from tests.chat.test_views import ask, begin, person, signed_in
from tests.generation.rows import make_worker

pytestmark = pytest.mark.django_db(transaction=True)


def found(asked: str, name: str = "ada") -> list[str]:
    return [result.conversation.title for result in search(person(name).pk, asked)[0]]


def said(text: str, title: str = "Numbers", name: str = "ada") -> Conversation:
    conversation = begin(name, title)
    ask(conversation, text=text)
    return conversation


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("How do rainbows form?", "rainbows"),
        ("How do rainbows form?", "FORM rain"),
        ("Crème brûlée", "creme BRULEE"),
        ("Straße", "strasse"),
        ("虹はどうやってできますか", "やって"),
        ("虹はどうやってできますか", "虹"),
        ("Почему небо голубое", "небо"),
        ("see https://example.org/some-path?x=1", "example path"),
        ("call snake_case(1.5e3)", "snake case 5e3"),
        ("١٢٣ قوس قزح", "قزح"),
        ("fullwidth ＡＢＣ", "abc"),
    ],
)
def test_it_finds_words_of_any_language(text: str, asked: str) -> None:
    said(text)
    assert found(asked) == ["Numbers"]


@pytest.mark.parametrize("asked", ["", "?!", "absent", "rain form", "bows", "てでき虹"])
def test_it_finds_nothing_where_a_word_is_missing(asked: str) -> None:
    said("How do rainbows form? 虹はどうやってできますか")
    assert found(asked) == []


def test_it_finds_titles_and_follows_their_change() -> None:
    conversation = begin(title="Prime numbers")
    assert found("prime") == ["Prime numbers"]
    keeping.rename(conversation, "Even ones")
    assert found("prime") == []
    assert found("even") == ["Even ones"]


@pytest.mark.parametrize("state", [Job.State.FINISHED, Job.State.CANCELLED, Job.State.FAILED])
def test_it_finds_what_a_reply_said_once_it_ended(state: Job.State) -> None:
    conversation = begin()
    prompt = Message.objects.create(conversation=conversation, role="user", text="?")
    reply = Message.objects.create(conversation=conversation, parent=prompt, role="assistant")
    job = queue.submit(person(), [{"role": "user", "content": "x"}])
    ReplyJob.objects.create(message=reply, job=job)
    claimed = queue.claim("gpu", ["mock"], make_worker(), "task")
    assert claimed is not None
    queue.end(claimed.pk, claimed.epoch, state, text="About **refraction** of light")
    assert found("refraction") == ["Numbers"]


def test_it_finds_only_ones_own() -> None:
    said("palimpsest", "Hers", "eve")
    said("palimpsest", "Mine", "ada")
    assert found("palimpsest") == ["Mine"]
    assert found("palimpsest", "eve") == ["Hers"]


def test_it_finds_nothing_of_what_was_deleted() -> None:
    conversation = said("palimpsest")
    keeping.delete(conversation)
    assert found("palimpsest") == []
    keeping.restore(conversation)
    assert found("palimpsest") == ["Numbers"]
    Passage.objects.filter(message__isnull=False).delete()
    assert found("palimpsest") == []
    assert found("numbers") == ["Numbers"]


def test_it_gives_pages_with_the_newest_first_and_each_conversation_once() -> None:
    for number in range(PAGE + 1):
        conversation = said("palimpsest palimpsest", f"{number}")
        Message.objects.create(conversation=conversation, role="user", text="palimpsest")
        at = timezone.now() + timedelta(minutes=number)
        Conversation.objects.filter(pk=conversation.pk).update(updated_at=at)
    first, more = search(person().pk, "palimpsest")
    assert [result.conversation.title for result in first] == [str(number) for number in range(PAGE, 0, -1)]
    assert more
    second, more = search(person().pk, "palimpsest", 2)
    assert [result.conversation.title for result in second] == ["0"]
    assert not more


def test_it_shows_hits_in_an_excerpt_and_nothing_as_markup() -> None:
    said("<script>alert(1)</script> " + "word " * 100 + "a <b>Palimpsest</b> here", "<i>T</i>")
    shown = signed_in().get("/search/", {"q": 'palimpsest "<script>'}).content.decode()
    assert "Nothing was found" not in shown
    assert "&lt;b&gt;<mark>Palimpsest</mark>&lt;/b&gt;" in shown or "<mark>script</mark>" in shown
    assert "<script>alert" not in shown
    assert "<i>T" not in shown
    assert "&quot;&lt;script&gt;" in shown


@pytest.mark.parametrize("page", ["", "0", "-1", "x", "99999999999999", "²", "2"])
def test_it_answers_any_number_of_a_page(page: str) -> None:
    said("palimpsest")
    assert signed_in().get("/search/", {"q": "palimpsest", "page": page}).status_code == 200


@pytest.mark.parametrize(
    "asked",
    ['"', "*", 'a" OR b', "words : x", "NEAR(a b)", "a & !b", "\\'", "(((", "a:*", "\0", "x" * 5000, "é" * 3000, "a-b"],
)
def test_it_takes_every_text_as_words_and_not_as_a_query(asked: str) -> None:
    said("something else")
    assert signed_in().get("/search/", {"q": asked}).status_code == 200
    assert search(person().pk, asked) == ([], False)


@given(st.text())
def test_it_searches_for_any_text(asked: str) -> None:
    search(1, asked)


@given(st.text(), st.text(max_size=20))
def test_an_excerpt_says_nothing_that_the_text_does_not(text: str, asked: str) -> None:
    pieces = words.excerpt(text, words.terms(asked))
    shown = "".join(piece.text for piece in pieces)
    assert shown.removeprefix("…").removesuffix("…") in " ".join(text.split()) or "…" in text
    assert len(shown) <= 202
