"""What a prompt means in a conversation: which messages it makes, and what the model gets to read.

Everything a frame asks for happens in one transaction with its job, so a refused prompt leaves no row behind.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext

from chatsite.chat import preferences
from chatsite.chat.models import Conversation, Message, ReplyJob
from chatsite.chat.preferences import Chosen
from chatsite.chat.threads import reply_text, thread, title_from
from generation import admission, queue
from generation.admission import Refused
from generation.models import Job

NEWEST = object()
"""The parent of a prompt that names none: the conversation's newest message."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What every frame that begins a job carries."""

    client_id: UUID
    model: str | None
    params: Mapping[str, object]


class _AlreadyAsked(Exception):
    """The client's id is known: roll back and answer with the job there is."""


def prompt(
    user: Any, conversation_id: UUID | None, text: str, parent: object, asked: Asked, settings: Chosen | None = None
) -> Job:
    """A new prompt and its reply. Without a conversation it begins one, with these settings. Raises Refused."""

    def begin() -> tuple[Message, list[dict[str, str]]]:
        if conversation_id is None:
            chosen = preferences.of_person(user.pk) if settings is None else settings
            conversation = Conversation(user=user, title=title_from(text), **chosen.as_columns)
            conversation.save()
        else:
            conversation = _conversation(user, conversation_id)
        above = _parent(conversation, parent)
        message = Message.objects.create(conversation=conversation, parent=above, role="user", text=text)
        reply = Message.objects.create(conversation=conversation, parent=message, role="assistant")
        return reply, [*history(conversation, above), {"role": "user", "content": text}]

    text = admission.storable(text)
    if not admission.is_visible(text):
        raise Refused("empty_prompt", gettext("The message is empty."))
    admission.check_length(text)
    return _submit(user, asked, begin)


def regenerate(user: Any, conversation_id: UUID | None, message_id: UUID, asked: Asked) -> Job:
    """Another reply to the same prompt; `message_id` is the prompt's or one of its replies'."""

    def begin() -> tuple[Message, list[dict[str, str]]]:
        message = _message(user, conversation_id, message_id)
        question = message.parent if message.role == "assistant" else message
        if question is None:
            raise Refused("not_found", gettext("There is no such message."))
        reply = Message.objects.create(conversation=question.conversation, parent=question, role="assistant")
        above = history(question.conversation, question.parent)
        return reply, [*above, {"role": "user", "content": question.text}]

    return _submit(user, asked, begin)


def go_on(user: Any, conversation_id: UUID | None, message_id: UUID, asked: Asked) -> Job:
    """Go on with a reply that ended at its length: a new job of the same reply, its turn left open."""
    last: Job | None = None

    def begin() -> tuple[Message, list[dict[str, str]]]:
        nonlocal last
        reply = _message(user, conversation_id, message_id)
        part = reply.parts.order_by("-id").select_related("job").first()
        if reply.role != "assistant" or part is None or reply.parent is None:
            raise Refused("not_found", gettext("There is no such reply."))
        if part.job.finish_reason != "length":
            raise Refused("bad_frame", gettext("Only a reply that ended at its length can be continued."))
        last = part.job
        above = history(reply.conversation, reply.parent.parent)
        turn = [
            {"role": "user", "content": reply.parent.text},
            {"role": "assistant", "content": reply_text(reply)},
        ]
        return reply, [*above, *turn]

    return _submit(user, asked, begin, lambda: last)


def _submit(user: Any, asked: Asked, begin: Any, like: Any = lambda: None) -> Job:
    known = Job.objects.filter(user=user, client_id=asked.client_id).first()
    if known is not None:
        return known
    try:
        with transaction.atomic():
            reply, messages = begin()
            chosen, before = Chosen.of(reply.conversation), like()
            model = asked.model or preferences.offered(chosen.model) or (before.model if before else None)
            stored = {**(before.params if before else {}), **chosen.params}
            job = queue.submit(
                user,
                [*chosen.first_messages, *messages],
                model=model,
                params=preferences.bounded(stored, asked.params, model),
                client_id=asked.client_id,
            )
            if ReplyJob.objects.filter(job=job).exists():
                raise _AlreadyAsked
            ReplyJob.objects.create(message=reply, job=job)
            Conversation.objects.filter(pk=reply.conversation_id).update(updated_at=timezone.now(), shown_leaf=reply.pk)
    except _AlreadyAsked:
        return Job.objects.get(user=user, client_id=asked.client_id)
    return job


def history(conversation: Conversation, leaf: Message | None) -> list[dict[str, str]]:
    """The turns down to `leaf`, from where the context was last cleared.

    A reply that is unfinished or empty is left out, with its prompt.
    """
    if leaf is None:
        return []
    messages: list[dict[str, str]] = []
    question: Message | None = None
    for message in thread(conversation, leaf):
        if message.role == "user":
            question = message
        elif question is not None:
            parts = [part.job for part in message.parts.all()]
            text = reply_text(message)
            if text and all(job.is_final for job in parts):
                messages.append({"role": "user", "content": question.text})
                messages.append({"role": "assistant", "content": text})
            question = None
        if message.context_cleared:
            messages, question = [], None
    return messages


def _conversation(user: AbstractBaseUser, conversation_id: UUID) -> Conversation:
    # Locked, so that two prompts at once see each other's messages; the line's lock comes after it.
    found = Conversation.objects.select_for_update().filter(pk=conversation_id, user_id=user.pk).first()
    if found is None:
        raise Refused("not_found", gettext("There is no such conversation."))
    return found


def _parent(conversation: Conversation, parent: object) -> Message | None:
    if parent is NEWEST:
        return conversation.messages.order_by("created_at", "id").last()
    if parent is None:
        return None
    found = conversation.messages.filter(pk=parent).first() if isinstance(parent, uuid.UUID) else None
    if found is None:
        raise Refused("not_found", gettext("There is no such message."))
    return found


def _message(user: AbstractBaseUser, conversation_id: UUID | None, message_id: UUID) -> Message:
    own = Message.objects.filter(pk=message_id, conversation__user_id=user.pk)
    found = own.select_related("conversation", "parent__parent").first()
    if found is None or found.conversation_id != conversation_id:
        raise Refused("not_found", gettext("There is no such message."))
    return found
