"""What a prompt must be to get into the line: its shape, and each limit with its code and message.

It reads rows and settings and changes nothing; `queue.submit` calls it.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext, ngettext

from generation import availability, conf, line_size, quotas
from generation.engine.params import ParamsError, SamplingParams
from generation.engine.spec import ModelSpec
from generation.models import Job, Priority, Queue
from generation.told import told

ROLES = ("system", "user", "assistant")

# Letters, marks and symbols by their category that show nothing when they stand alone: fillers, the combining
# grapheme joiner, the empty braille pattern, variation selectors.
INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(map(chr, range(0xFE00, 0xFE10)))


class Refused(Exception):
    """Nothing was queued and nothing lost. `code` is the protocol's, `message` is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


def storable(text: str) -> str:
    """The text with what no database or UTF-8 stream can hold (NUL, lone surrogates) replaced by U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_visible(text: str) -> bool:
    """Whether a person would see anything: blanks, controls and zero-width characters alone are nothing."""
    return any(
        not char.isspace() and unicodedata.category(char) not in ("Cf", "Cc") and char not in INVISIBLE for char in text
    )


def check_messages(messages: object) -> list[dict[str, str]]:
    """The messages as they are stored. The last is a person's, or a reply that is to be continued."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise Refused("empty_prompt", gettext("There is no message to answer."))
    checked = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise Refused("bad_frame", gettext("Each message needs a role: %(roles)s.") % {"roles": ", ".join(ROLES)})
        if not isinstance(message.get("content"), str):
            raise Refused("bad_frame", gettext("Each message needs its content as text."))
        checked.append({"role": message["role"], "content": storable(message["content"])})
    asked = next((message["content"] for message in reversed(checked) if message["role"] == "user"), "")
    if checked[-1]["role"] == "system" or not is_visible(asked):
        raise Refused("empty_prompt", gettext("The message is empty."))
    check_length(asked)
    return checked


def check_length(text: str) -> None:
    limit = conf.max_prompt_chars()
    if len(text) > limit:
        words = gettext("The message has %(length)s characters; %(limit)s are allowed.")
        raise Refused("prompt_too_long", words % {"length": f"{len(text):,}", "limit": f"{limit:,}"})


def check_params(params: Mapping[str, object] | None, spec: ModelSpec) -> SamplingParams:
    try:
        sampling = SamplingParams.parse(
            params or {}, max_new_tokens=conf.max_new_tokens(), default_new_tokens=spec.default_new_tokens
        )
    except ParamsError as error:
        raise Refused("bad_params", told(str(error))) from None
    return replace(sampling, stop=tuple(map(storable, sampling.stop)))


def check_model(name: str | None, user: Any) -> ModelSpec:
    """The model's entry; refused if it is configured nowhere or failed to load on every worker that tried."""
    configured = conf.models()
    spec = configured.get(name or conf.default_model())
    if spec is None:
        asked = repr(storable(str(name))[:100])
        words = gettext("There is no model %(model)s; there are: %(known)s.")
        raise Refused("model_unavailable", words % {"model": asked, "known": ", ".join(configured)})
    if failure := availability.failures(availability.witnesses(), spec.queue).get(spec.name):
        raise Refused("model_unavailable", told(failure.message_for(user)))
    return spec


def check_quota(user: Any, now: datetime) -> None:
    """Tokens used on this day and in this month. Jobs that still wait or run count once they have ended."""
    if message := quotas.refusal(user, now):
        raise Refused("quota_exceeded", message)


def check_limits(queue: Queue, user_id: Any, now: datetime, priority: Priority = Priority.NORMAL) -> None:
    """The caps on the line and on each person. Needs the queue's lock and the person's, so that they are exact.

    Work of a lower priority, which a site adds by itself, takes nothing of what a person may ask.
    """
    unfinished = [Job.State.QUEUED, Job.State.RUNNING]
    # All queues are named, so that the index finds these among all the jobs that the person ever had.
    mine = Job.objects.filter(user_id=user_id, priority__gte=priority)
    own = mine.filter(queue__in=Queue.objects.values("pk"), state__in=unfinished).count()
    if own >= (limit := conf.max_jobs_per_user()):
        words = ngettext(
            "You have %(number)s prompt waiting or running; %(limit)s is allowed at once. The next one when it ends.",
            "You have %(number)s prompts waiting or running; %(limit)s are allowed at once. "
            "The next one when one of them ends.",
            own,
        )
        raise Refused("too_many_jobs", words % {"number": f"{own:,}", "limit": f"{limit:,}"})
    minute = now - timedelta(minutes=1)
    recent = mine.filter(created_at__gt=minute).order_by("-created_at")
    instants = list(recent.values_list("created_at", flat=True)[: conf.messages_per_minute()])
    if len(instants) >= conf.messages_per_minute():
        wait = max(1, math.ceil((instants[-1] - minute).total_seconds()))
        words = ngettext(
            "%(number)s message a minute is allowed; the next one in %(seconds)s s.",
            "%(number)s messages a minute are allowed; the next one in %(seconds)s s.",
            len(instants),
        )
        raise Refused("rate_limited", words % {"number": f"{len(instants):,}", "seconds": wait})
    limit = conf.max_queue_size() if queue.max_size is None else queue.max_size
    if (size := line_size.sizes.size_if_full(queue, limit)) is not None:
        words = ngettext(
            "%(number)s prompt is waiting; %(limit)s is allowed. Try again in a while: a place comes free "
            "when it starts.",
            "%(number)s prompts are waiting; %(limit)s are allowed. Try again in a while: a place comes free "
            "whenever one of them starts.",
            size,
        )
        raise Refused("queue_full", words % {"number": f"{size:,}", "limit": f"{limit:,}"})
