"""Search in a person's own titles and texts: each has a `Passage` with its words, which the database indexes.

SQLite has them in an FTS5 table kept in step by triggers, PostgreSQL in a GIN index (migration 0003). A passage is
written with what it is of: by Django's signals for titles and messages, at a job's end for what it wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models.signals import post_save

from chatsite.chat.models import Conversation, Message, Passage, ReplyJob
from chatsite.chat.words import Piece, Term, excerpt, normalised, terms
from generation import signals
from generation.models import Job

PAGE = 20

_FOUND = """
    SELECT passage.conversation_id, MAX(passage.id)
    FROM {tables} JOIN chat_conversation conversation ON conversation.id = passage.conversation_id
    WHERE {match} AND conversation.deleted_at IS NULL AND passage.user_id = %s
    GROUP BY passage.conversation_id
    ORDER BY MAX(conversation.updated_at) DESC, passage.conversation_id
    LIMIT %s OFFSET %s
"""
_ON_SQLITE = _FOUND.format(
    # CROSS JOIN: the words are looked up first.
    tables="chat_passage_words CROSS JOIN chat_passage passage ON passage.id = chat_passage_words.rowid",
    match="chat_passage_words MATCH %s",
)
_ON_POSTGRESQL = _FOUND.format(
    tables="chat_passage passage", match="to_tsvector('simple', passage.words) @@ to_tsquery('simple', %s)"
)


@dataclass(frozen=True, slots=True)
class Result:
    """A conversation with a part of the newest of its texts that has all the words."""

    conversation: Conversation
    excerpt: list[Piece]


def search(user_id: Any, asked: str, page: int = 1) -> tuple[list[Result], bool]:
    """One page of results, newest conversations first, and whether there are more."""
    wanted = terms(asked)
    if not wanted:
        return [], False
    if connection.vendor == "sqlite":
        sql, query = _ON_SQLITE, f'user_id : "{user_id}" AND words : ({_for_sqlite(wanted)})'
    else:
        sql, query = _ON_POSTGRESQL, _for_postgresql(wanted)
    with connection.cursor() as cursor:
        cursor.execute(sql, [query, user_id, PAGE + 1, (page - 1) * PAGE])
        found = [row[1] for row in cursor.fetchall()]
    passages = Passage.objects.select_related("conversation", "message", "part__job").in_bulk(found[:PAGE])
    return [
        Result(passage.conversation, excerpt(_text_of(passage), wanted))
        for number in found[:PAGE]
        if (passage := passages.get(number))
    ], len(found) > PAGE


def _for_sqlite(wanted: Sequence[Term]) -> str:
    # Words are letters and digits only: nothing in them has a meaning for either query language.
    return " AND ".join(f'"{" ".join(term.words)}"{" *" if term.is_prefix else ""}' for term in wanted)


def _for_postgresql(wanted: Sequence[Term]) -> str:
    return " & ".join(f"({' <-> '.join(term.words)}{':*' if term.is_prefix else ''})" for term in wanted)


def _text_of(passage: Passage) -> str:
    if passage.message is not None:
        return passage.message.text
    return passage.part.job.text if passage.part is not None else passage.conversation.title


def index_title(conversation_id: UUID, user_id: Any, title: str) -> None:
    Passage.objects.update_or_create(
        conversation_id=conversation_id,
        message=None,
        part=None,
        defaults={"user_id": user_id, "words": normalised(title)},
    )


def index_part(job: Job) -> None:
    """What an ended job wrote of a reply; nothing if it was no reply's."""
    part = ReplyJob.objects.filter(job=job).select_related("message").first()
    if part is None or not (words := normalised(job.text)):
        return
    defaults = {"user_id": job.user_id, "conversation_id": part.message.conversation_id, "words": words}
    Passage.objects.update_or_create(part=part, defaults=defaults)


def passage_of(message: Message, user_id: Any) -> Passage:
    """Not saved."""
    return Passage(
        user_id=user_id, conversation_id=message.conversation_id, message=message, words=normalised(message.text)
    )


def _conversation_saved(instance: Conversation, raw: bool = False, **_: Any) -> None:
    if not raw:
        index_title(instance.pk, instance.user_id, instance.title)


def _message_saved(instance: Message, created: bool, raw: bool = False, **_: Any) -> None:
    if raw or not instance.text:
        return
    passage = passage_of(instance, instance.conversation.user_id)
    if created:
        passage.save(force_insert=True)
    else:
        defaults = {
            "user_id": passage.user_id,
            "conversation_id": passage.conversation_id,
            "words": passage.words,
        }
        Passage.objects.update_or_create(message=instance, defaults=defaults)


def _job_ended(job: Job, **_: Any) -> None:
    index_part(job)


def connect() -> None:
    """Once, when the apps are ready."""
    post_save.connect(_conversation_saved, sender=Conversation, dispatch_uid="search.title")
    post_save.connect(_message_saved, sender=Message, dispatch_uid="search.message")
    for signal in (signals.job_finished, signals.job_failed, signals.job_cancelled):
        signal.connect(_job_ended, sender=Job, dispatch_uid="search.reply")
