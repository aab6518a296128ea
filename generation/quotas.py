"""How many tokens a person may use in a day and a month, and when the next ones come. It reads and changes nothing."""

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Q
from django.utils.formats import date_format
from django.utils.translation import gettext, ngettext, pgettext

from generation import ledger
from generation.models import Quota


def refusal(user: Any, now: datetime) -> str | None:
    """Why this person gets no more tokens now, with the figures and the end of it; None if there are some left."""
    if not Quota.objects.exists():
        return None  # most sites have none, and this is asked at each prompt
    rows = of(user)
    per_day = _most_generous(row.tokens_per_day for row in rows)
    per_month = _most_generous(row.tokens_per_month for row in rows)
    if per_day is None and per_month is None:
        return None
    today = ledger.day_of(now)
    used = ledger.used(user.pk, today)
    # The month's first: where both are used up, the day's end would bring nothing.
    if per_month is not None and used["month"] >= per_month:
        ends = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
        words = gettext(
            "You have used %(used)s of the %(limit)s tokens of this month; "
            "the quota resets on %(day)s at 00:00 UTC, %(until)s."
        )
        day = date_format(ends, pgettext("day of a quota's reset", "j F"))
        figures = {"used": f"{used['month']:,}", "limit": f"{per_month:,}"}
        return words % {**figures, "day": day, "until": _until(ends, now)}
    if per_day is not None and used["day"] >= per_day:
        ends = today + timedelta(days=1)
        words = gettext(
            "You have used %(used)s of the %(limit)s tokens of this day; the quota resets at 00:00 UTC, %(until)s."
        )
        return words % {"used": f"{used['day']:,}", "limit": f"{per_day:,}", "until": _until(ends, now)}
    return None


def of(user: Any) -> list[Quota]:
    """The rows that count for a person: one's own, else those of one's groups, else everybody's."""
    groups = user.groups.values("pk") if hasattr(user, "groups") else ()
    rows = list(Quota.objects.filter(Q(user=user.pk) | Q(group__in=groups) | Q(user=None, group=None)))
    own = [row for row in rows if row.user_id is not None]
    of_groups = [row for row in rows if row.group_id is not None]
    return own or of_groups or rows


def _most_generous(limits: Iterable[int | None]) -> int | None:
    """The largest; None, no limit, is larger than any, and what no row at all means."""
    allowed = list(limits)
    numbers = [limit for limit in allowed if limit is not None]
    return max(numbers) if numbers and len(numbers) == len(allowed) else None


def _until(day: date, now: datetime) -> str:
    seconds = (datetime.combine(day, time(), UTC) - now).total_seconds()
    hours, minutes = divmod(max(1, math.ceil(seconds / 60)), 60)
    if hours >= 48:
        days = hours // 24
        return ngettext("in %(days)s day", "in %(days)s days", days) % {"days": days}
    if hours:
        return gettext("in %(hours)s h %(minutes)s min") % {"hours": hours, "minutes": minutes}
    return gettext("in %(minutes)s min") % {"minutes": minutes}
