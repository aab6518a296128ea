"""What people do with their conversations: rename, pin, delete, restore; and the sweep that deletes for good."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext

from chatsite.chat import news
from chatsite.chat.models import Conversation, ReplyJob, TitleJob
from chatsite.chat.search import index_title
from generation import admission, instants, queue, retention, signals
from generation.models import Job

TITLE_LIMIT = 200
RESTORABLE_SECONDS = 60.0
SETTLED_SECONDS = 10.0
"""A worker writes the end of a job into its stream after the row."""
SWEPT_AT_ONCE = 100

UNFINISHED = (Job.State.QUEUED, Job.State.RUNNING)


class BadTitle(ValueError):
    """The text is for people."""


def rename(conversation: Conversation, title: str) -> str:
    """Give it a title of one line that no model changes any more; the title as it is stored. Raises BadTitle."""
    title = " ".join(admission.storable(title).split())
    if not admission.is_visible(title):
        raise BadTitle(gettext("A title needs a character."))
    if len(title) > TITLE_LIMIT:
        words = gettext("The title has %(length)s characters; %(limit)s are allowed.")
        raise BadTitle(words % {"length": f"{len(title):,}", "limit": TITLE_LIMIT})
    with transaction.atomic():
        Conversation.objects.filter(pk=conversation.pk).update(title=title, title_edited=True)
        index_title(conversation.pk, conversation.user_id, title)
    news.tell(conversation.pk, "title", title=title)
    return title


def pin(conversation: Conversation, pinned: bool) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(pinned_at=instants.now() if pinned else None)


def delete(conversation: Conversation) -> None:
    """Gone for everybody at once, its replies stopped; for good after a minute, until when it can be restored."""
    Conversation.objects.filter(pk=conversation.pk).update(deleted_at=instants.now())
    _cancel_jobs(conversation.pk)


def restore(conversation: Conversation) -> None:
    Conversation.with_deleted.filter(pk=conversation.pk).update(deleted_at=None)


def sweep() -> int:
    """Delete for good what was deleted over a minute ago, with every text of its jobs; how many conversations."""
    now = instants.now()
    old = Conversation.with_deleted.filter(deleted_at__lt=now - timedelta(seconds=RESTORABLE_SECONDS))
    return sum(_purge(pk) for pk in list(old.values_list("pk", flat=True)[:SWEPT_AT_ONCE]))


def _purge(conversation_id: UUID) -> bool:
    """False if a job of it still runs, which the next sweep will find ended, or if it was restored meanwhile."""
    _cancel_jobs(conversation_id)
    settled = instants.now() - timedelta(seconds=SETTLED_SECONDS)
    with transaction.atomic():
        rows = Conversation.with_deleted.select_for_update().filter(pk=conversation_id, deleted_at__isnull=False)
        conversation = rows.first()
        if conversation is None:
            return False
        ids = _job_ids(conversation_id)
        if Job.objects.filter(Q(state__in=UNFINISHED) | Q(ended_at__gt=settled), pk__in=ids).exists():
            return False
        conversation.delete()
        retention.forget_texts(ids)
    return True


def _cancel_jobs(conversation_id: UUID) -> None:
    for job in Job.objects.filter(pk__in=_job_ids(conversation_id), state__in=UNFINISHED):
        queue.cancel(job)


def _job_ids(conversation_id: UUID) -> list[UUID]:
    replies = ReplyJob.objects.filter(message__conversation=conversation_id).values_list("job_id", flat=True)
    titles = TitleJob.objects.filter(conversation=conversation_id).values_list("job_id", flat=True)
    return [*replies, *titles]


def _tick(**_: Any) -> None:
    sweep()


def connect() -> None:
    """Once, when the apps are ready."""
    signals.tick.connect(_tick, dispatch_uid="keeping")
