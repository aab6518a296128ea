"""Conversations as files: Markdown to read, JSON to read and to take in again. Ids in a file are the file's own.

Export streams and reads a conversation at a time. Import checks the whole file before it writes the first row.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, models, transaction
from django.db.models import Prefetch
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

from chatsite.chat import preferences
from chatsite.chat.keeping import TITLE_LIMIT
from chatsite.chat.models import Conversation, Message, Passage, ReplyJob
from chatsite.chat.preferences import BadPreferences, Chosen
from chatsite.chat.search import passage_of
from chatsite.chat.threads import reply_text, thread
from chatsite.chat.words import normalised
from generation import admission

FORMAT = "tokenline-conversations"
VERSION = 1
MAX_BYTES = 20_000_000
MAX_CONVERSATIONS = 10_000
MAX_MESSAGES = 20_000
"""SQLite lets nobody else write while they are written, which takes seconds."""
MAX_TEXT_CHARS = 1_000_000
BATCH = 500


class BadFile(ValueError):
    """Nothing was taken in. The text is for people."""


def as_markdown(conversations: Iterable[Conversation]) -> Iterator[str]:
    """The branch that is shown of each."""
    # Now: the pieces are asked for later, when no language is active any more.
    speakers = {Message.Role.USER.value: gettext("You"), Message.Role.ASSISTANT.value: gettext("Reply")}
    return _in_markdown(conversations, speakers)


def _in_markdown(conversations: Iterable[Conversation], speakers: Mapping[str, str]) -> Iterator[str]:
    for number, conversation in enumerate(conversations):
        yield "\n---\n\n" if number else ""
        yield f"# {conversation}\n"
        for message in thread(conversation):
            yield f"\n## {speakers[message.role]}\n\n{reply_text(message).strip()}\n"


def as_json(conversations: Iterable[Conversation]) -> Iterator[str]:
    """All branches of each."""
    head = {"format": FORMAT, "version": VERSION, "exported_at": timezone.now().isoformat()}
    yield json.dumps(head)[:-1] + ', "conversations": ['
    for number, conversation in enumerate(conversations):
        yield (",\n" if number else "\n") + json.dumps(_described(conversation), ensure_ascii=False)
    yield "\n]}\n"


def _described(conversation: Conversation) -> dict[str, Any]:
    parts = ReplyJob.objects.select_related("job").defer("job__messages", "job__error_traceback")
    return {
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "updated_at": conversation.updated_at.isoformat(),
        "pinned": conversation.pinned_at is not None,
        "settings": Chosen.of(conversation).as_json,
        "messages": [
            {
                "id": str(message.pk),
                "parent": str(message.parent_id) if message.parent_id else None,
                "role": message.role,
                "text": reply_text(message),
                "created_at": message.created_at.isoformat(),
            }
            for message in conversation.messages.prefetch_related(Prefetch("parts", queryset=parts))
        ],
    }


def all_of(user_id: Any) -> Iterator[Conversation]:
    """Newest first; no query stays open while a slow reader takes them."""
    ids = list(Conversation.objects.filter(user=user_id).order_by("-updated_at", "-id").values_list("pk", flat=True))
    for start in range(0, len(ids), BATCH):
        found = Conversation.objects.filter(user=user_id).in_bulk(ids[start : start + BATCH])
        yield from (found[pk] for pk in ids[start : start + BATCH] if pk in found)


@dataclass(slots=True)
class _Said:
    role: str
    text: str
    created_at: datetime
    parent: UUID | None
    id: UUID = field(default_factory=uuid.uuid4)


@dataclass(slots=True)
class _Read:
    title: str
    created_at: datetime
    updated_at: datetime
    is_pinned: bool
    settings: Chosen
    messages: list[_Said]


def take_in(user: Any, content: bytes) -> int:
    """Add the conversations of a JSON export to this person's; how many. Raises BadFile before anything is written."""
    read = _parse(content)
    conversations, messages, passages = [], [], []
    dated: list[tuple[UUID, datetime, datetime]] = []
    dated_messages: list[tuple[UUID, datetime]] = []
    for each in read:
        conversation = Conversation(
            user=user,
            title=each.title,
            title_edited=bool(each.title),
            pinned_at=each.updated_at if each.is_pinned else None,
            **each.settings.as_columns,
        )
        conversations.append(conversation)
        dated.append((conversation.pk, each.created_at, each.updated_at))
        passages.append(Passage(user=user, conversation=conversation, words=normalised(each.title)))
        for said in each.messages:
            message = Message(
                id=said.id, conversation=conversation, parent_id=said.parent, role=said.role, text=said.text
            )
            messages.append(message)
            dated_messages.append((said.id, said.created_at))
            if said.text:
                passages.append(passage_of(message, user.pk))
    with transaction.atomic():
        Conversation.objects.bulk_create(conversations, batch_size=BATCH)
        Message.objects.bulk_create(messages, batch_size=BATCH)
        Passage.objects.bulk_create(passages, batch_size=BATCH)
        # `auto_now_add` has written the present.
        _write_instants(Conversation, ("created_at", "updated_at"), dated)
        _write_instants(Message, ("created_at",), dated_messages)
    return len(conversations)


def _write_instants(model: type[models.Model], names: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    """`rows`: the key, then the fields' values."""
    quote, key = connection.ops.quote_name, model._meta.pk
    assert key is not None
    fields = [each for name in names if isinstance(each := model._meta.get_field(name), models.Field)]
    assigned = ", ".join(f"{quote(name)} = %s" for name in names)
    values = [
        [
            *(each.get_db_prep_save(value, connection) for each, value in zip(fields, instants, strict=True)),
            key.get_db_prep_save(pk, connection),
        ]
        for pk, *instants in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(f"UPDATE {quote(model._meta.db_table)} SET {assigned} WHERE id = %s", values)


def too_large(size: int) -> str:
    words = gettext("The file has %(size)s bytes; %(limit)s are allowed.")
    return words % {"size": f"{size:,}", "limit": f"{MAX_BYTES:,}"}


def _parse(content: bytes) -> list[_Read]:
    if len(content) > MAX_BYTES:
        raise BadFile(too_large(len(content)))
    try:
        found = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise BadFile(gettext("This is no JSON file.")) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadFile(gettext("This is no export of conversations."))
    if found.get("version") != VERSION:
        words = gettext("The file's version is %(found)s; this site reads version %(version)s.")
        raise BadFile(words % {"found": f"{found.get('version')!r:.20}", "version": VERSION})
    conversations = _list_of(found, "conversations", gettext("the file"), MAX_CONVERSATIONS)
    read = []
    num_messages = 0
    for number, each in enumerate(conversations, start=1):
        read.append(_conversation(each, gettext("conversation %(number)s") % {"number": number}))
        num_messages += len(read[-1].messages)
        if num_messages > MAX_MESSAGES:
            raise BadFile(gettext("The file has more than %(limit)s messages.") % {"limit": f"{MAX_MESSAGES:,}"})
    return read


def _conversation(found: object, where: str) -> _Read:
    if not isinstance(found, dict):
        raise BadFile(gettext("%(Where)s is no object.") % {"Where": where.capitalize()})
    title = " ".join(_text(found, "title", where, TITLE_LIMIT).split())
    created_at, updated_at = _instant(found, "created_at", where), _instant(found, "updated_at", where)
    is_pinned = found.get("pinned", False)
    if not isinstance(is_pinned, bool):
        raise BadFile(gettext("`pinned` of %(where)s is neither true nor false.") % {"where": where})
    try:
        # Files of before have none.
        settings = preferences.from_json(found.get("settings") or {}, Chosen(), is_foreign=True)
    except BadPreferences as bad:
        raise BadFile(gettext("`settings` of %(where)s are wrong. %(why)s") % {"where": where, "why": bad}) from None
    messages: list[_Said] = []
    by_id: dict[str, _Said] = {}
    for number, each in enumerate(_list_of(found, "messages", where, MAX_MESSAGES), start=1):
        place = gettext("message %(number)s of %(where)s") % {"number": number, "where": where}
        said, name = _message(each, by_id, place)
        # The order of a conversation is that of its instants, so no two are the same.
        if messages and said.created_at <= messages[-1].created_at:
            said.created_at = messages[-1].created_at + timedelta(microseconds=1)
        by_id[name] = said
        messages.append(said)
    return _Read(title, created_at, updated_at, is_pinned, settings, messages)


def _message(found: object, earlier: Mapping[str, _Said], where: str) -> tuple[_Said, str]:
    """The message and its id in the file. Its parent is one of the `earlier`."""
    if not isinstance(found, dict):
        raise BadFile(gettext("%(Where)s is no object.") % {"Where": where.capitalize()})
    name = _text(found, "id", where, 100)
    if not name or name in earlier:
        raise BadFile(gettext("The `id` of %(where)s is empty or not its own.") % {"where": where})
    role, parent = found.get("role"), found.get("parent")
    if role not in (Message.Role.USER, Message.Role.ASSISTANT):
        raise BadFile(gettext("The `role` of %(where)s is neither user nor assistant.") % {"where": where})
    above = earlier.get(parent) if isinstance(parent, str) else None
    if parent is not None and above is None:
        raise BadFile(gettext("The `parent` of %(where)s is no earlier message.") % {"where": where})
    if role == Message.Role.ASSISTANT and (above is None or above.role != Message.Role.USER):
        words = gettext("%(Where)s is a reply, but its parent is no prompt.")
        raise BadFile(words % {"Where": where.capitalize()})
    text = _text(found, "text", where, MAX_TEXT_CHARS)
    return _Said(role, text, _instant(found, "created_at", where), above.id if above else None), name


def _list_of(found: Mapping[str, Any], name: str, where: str, limit: int) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise BadFile(gettext("`%(name)s` of %(where)s is no list.") % {"name": name, "where": where})
    if len(value) > limit:
        words = gettext("`%(name)s` of %(where)s has %(number)s entries; %(limit)s are allowed.")
        raise BadFile(words % {"name": name, "where": where, "number": f"{len(value):,}", "limit": f"{limit:,}"})
    return value


def _text(found: Mapping[str, Any], name: str, where: str, limit: int) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise BadFile(gettext("`%(name)s` of %(where)s is no text.") % {"name": name, "where": where})
    if len(value) > limit:
        words = gettext("`%(name)s` of %(where)s has %(length)s characters; %(limit)s are allowed.")
        raise BadFile(words % {"name": name, "where": where, "length": f"{len(value):,}", "limit": f"{limit:,}"})
    return admission.storable(value)


def _instant(found: Mapping[str, Any], name: str, where: str) -> datetime:
    value = found.get(name)
    try:
        instant = parse_datetime(value) if isinstance(value, str) else None
        if instant is None or timezone.is_naive(instant):
            raise ValueError("no instant")
        instant = instant.astimezone(UTC)
    except (ValueError, OverflowError):
        words = gettext("`%(name)s` of %(where)s is no date and time with a zone.")
        raise BadFile(words % {"name": name, "where": where}) from None
    if not 1970 <= instant.year < 3000:
        raise BadFile(gettext("`%(name)s` of %(where)s is out of range.") % {"name": name, "where": where})
    return instant
