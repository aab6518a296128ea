"""Titles by the model: a job of the lowest priority whose words become the title, unless a person wrote one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsite.chat import keeping, titles
from chatsite.chat.models import Conversation, ReplyJob, TitleJob
from chatsite.chat.search import search
from chatsite.chat.titles import clean
from generation import queue
from generation.models import Job, Priority, Queue
from tests.chat.test_views import add_part, ask, begin, person
from tests.generation.rows import make_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def models(settings: Any) -> None:
    settings.GENERATION_MODELS = "real=some/model mock=mock:"


def answered(model: str = "real", text: str = "Light is refracted.", title: str = "Numbers") -> Conversation:
    """A conversation whose first reply a worker has just finished."""
    conversation = begin(title=title)
    _, reply = ask(conversation, text="How do rainbows form?", state=Job.State.QUEUED, ended_at=None)
    Job.objects.filter(reply_part__message=reply).update(model=model)
    end(reply.parts.get().job, text)
    return conversation


def end(job: Job, text: str, state: Job.State = Job.State.FINISHED, reason: str = "stop") -> None:
    claimed = queue.claim("gpu", [job.model], make_worker(), "task")
    assert claimed == job or claimed is not None and claimed.pk == job.pk
    assert queue.end(job.pk, claimed.epoch, state, text=text, finish_reason=reason)


def title_job(conversation: Conversation) -> Job:
    return TitleJob.objects.get(conversation=conversation).job


def test_it_asks_the_model_after_the_first_reply_behind_everybody_else() -> None:
    job = title_job(answered())
    assert (job.state, job.priority, job.model) == (Job.State.QUEUED, Priority.BATCH, "real")
    assert job.params["max_new_tokens"] == 12
    assert "How do rainbows form?" in job.messages[0]["content"]
    assert "Light is refracted." in job.messages[0]["content"]


def test_it_takes_what_the_model_said_and_finds_it() -> None:
    conversation = answered()
    end(title_job(conversation), '**"How rainbows form."**\n')
    conversation.refresh_from_db()
    assert conversation.title == "How rainbows form"
    assert not conversation.title_edited
    assert [each.conversation for each in search(person().pk, "how rainbows")[0]] == [conversation]
    assert Conversation.objects.count() == 1


def test_it_keeps_the_title_that_a_person_wrote_meanwhile() -> None:
    conversation = answered()
    keeping.rename(conversation, "Mine")
    end(title_job(conversation), "The model's")
    conversation.refresh_from_db()
    assert conversation.title == "Mine"


@pytest.mark.parametrize("text", ["", '"…"', "<think>What could", "**"])
def test_it_keeps_the_first_line_where_the_model_says_no_title(text: str) -> None:
    conversation = answered()
    end(title_job(conversation), text)
    conversation.refresh_from_db()
    assert conversation.title == "Numbers"


def test_it_keeps_the_first_line_where_the_job_fails() -> None:
    conversation = answered()
    end(title_job(conversation), "Half a", Job.State.FAILED)
    conversation.refresh_from_db()
    assert conversation.title == "Numbers"


def test_it_asks_no_model_without_weights_and_no_second_time() -> None:
    answered("mock")
    assert not TitleJob.objects.exists()
    conversation = answered()
    job = title_job(conversation)
    end(job, "A title")
    reply = ReplyJob.objects.filter(message__conversation=conversation).latest("pk").message
    assert titles.ask(add_part(reply)) is None
    assert TitleJob.objects.count() == 1


def test_it_asks_nothing_for_a_title_that_a_person_wrote_or_an_empty_reply() -> None:
    answered(text=" \n")
    assert not TitleJob.objects.exists()
    conversation = begin()
    keeping.rename(conversation, "Mine")
    _, reply = ask(conversation)
    Job.objects.update(model="real", text="x")
    assert titles.ask(reply.parts.get().job) is None


def test_it_leaves_the_title_where_the_line_is_full() -> None:
    Queue.objects.create(name="gpu", max_size=1)
    conversation = begin()
    _, reply = ask(conversation)
    Job.objects.update(model="real", text="x")
    queue.submit(person("eve"), [{"role": "user", "content": "x"}])
    assert titles.ask(reply.parts.get().job) is None
    assert not TitleJob.objects.exists()


def test_a_title_takes_no_place_of_what_its_person_may_ask(settings: Any) -> None:
    settings.GENERATION_MAX_JOBS_PER_USER = 1
    settings.GENERATION_MESSAGES_PER_MINUTE = 2
    conversation = answered()
    assert title_job(conversation).state == Job.State.QUEUED
    assert queue.submit(person(), [{"role": "user", "content": "x"}]).state == Job.State.QUEUED


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("How rainbows form", "How rainbows form"),
        ('  "How rainbows form."\nMore', "How rainbows form"),
        ("# How *rainbows* form", "How rainbows form"),
        ("Title: **How `rainbows` form**", "How rainbows form"),
        ("<think>Hm.\n\nOk</think>\n\nRainbows", "Rainbows"),
        ("«Les arcs-en-ciel»", "Les arcs-en-ciel"),
        ("「虹のしくみ」", "虹のしくみ"),
        ("C++ and snake_case", "C++ and snake_case"),
        ("word " * 30, "word word word word word word word word word word word word"),
        ("x" * 100, "x" * 60),
        ("", ""),
        ("---\n***\n", ""),
    ],
)
def test_it_cleans_a_title(written: str, title: str) -> None:
    assert clean(written) == title


def test_it_ends_a_title_that_was_cut_with_a_whole_word() -> None:
    assert clean("How rainbows fo", is_cut=True) == "How rainbows"
    assert clean("Rainbo", is_cut=True) == "Rainbo"
    assert clean("How rainbows form\nThe", is_cut=True) == "How rainbows form"


@given(st.text(), st.booleans())
def test_a_title_is_one_short_line(written: str, is_cut: bool) -> None:
    title = clean(written, is_cut=is_cut)
    assert len(title) <= 60
    assert len(title.splitlines()) <= 1
    assert title == title.strip()
