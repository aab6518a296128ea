"""The list of conversations: what is pinned, then the rest by date, a page at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format
from django.utils.translation import gettext, pgettext

from chatsite.chat.models import Conversation

PAGE = 50
MAX_PINNED = 100


class BadMark(ValueError):
    """Not what `Page.more` was."""


@dataclass(frozen=True, slots=True)
class Group:
    """Conversations of one stretch of time, or the pinned ones. The name is in the reader's language."""

    key: str
    name: str
    conversations: list[Conversation]


@dataclass(frozen=True, slots=True)
class Page:
    groups: list[Group]
    more: str
    """Marks where the next page begins; empty on the last."""


def sidebar(user_id: Any, after: str = "") -> Page:
    """One page: the first with the pinned ones, or the one after a mark. Two queries, or one. Raises BadMark."""
    listed = Conversation.objects.filter(user=user_id).defer("system_prompt", "params")
    rest = listed.filter(pinned_at=None).order_by("-updated_at", "-id")
    groups = []
    if after:
        at, last = _read(after)
        # As a range and a condition, not as two alternatives, it is read from where it begins in the index.
        rest = rest.filter(updated_at__lte=at).exclude(updated_at=at, id__gte=last)
    else:
        pinned = listed.filter(pinned_at__isnull=False).order_by("-pinned_at")
        if found := list(pinned[:MAX_PINNED]):
            groups.append(Group("Pinned", gettext("Pinned"), found))
    page = list(rest[: PAGE + 1])
    more = _mark(page[PAGE - 1]) if len(page) > PAGE else ""
    return Page(groups + _by_date(page[:PAGE], timezone.localdate()), more)


def _mark(conversation: Conversation) -> str:
    return f"{conversation.updated_at.isoformat()}~{conversation.pk}"


def _read(mark: str) -> tuple[datetime, UUID]:
    at, _, last = mark.partition("~")
    try:
        parsed = parse_datetime(at)
        if parsed is None or timezone.is_naive(parsed):
            raise ValueError("no instant")
        return parsed.astimezone(timezone.get_default_timezone()), UUID(last)
    except (ValueError, OverflowError):
        raise BadMark(mark) from None


def _by_date(conversations: Iterable[Conversation], today: date) -> list[Group]:
    def key(conversation: Conversation) -> str:
        day = timezone.localdate(conversation.updated_at)
        if day >= today:
            return "Today"
        if day == today - timedelta(days=1):
            return "Yesterday"
        return "Previous 7 days" if day >= today - timedelta(days=7) else f"{day:%B %Y}"

    names = {
        "Today": gettext("Today"),
        "Yesterday": gettext("Yesterday"),
        "Previous 7 days": gettext("Previous 7 days"),
    }
    found = [(each, list(group)) for each, group in groupby(conversations, key)]
    return [Group(each, names.get(each) or _month(group[0].updated_at), group) for each, group in found]


def _month(instant: datetime) -> str:
    return date_format(timezone.localdate(instant), pgettext("a month of the list of conversations", "F Y"))
