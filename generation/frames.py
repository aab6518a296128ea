"""Reading a client's frames: every wrong one becomes a Refused with its code, and nothing else happens."""

import json
from typing import Any
from uuid import UUID

from django.utils.translation import gettext

from generation.admission import Refused, storable

Frame = dict[str, Any]

MAX_SEQ = 2**31 - 1


def parse(text: str | None) -> Frame:
    if text is None:
        raise Refused("bad_frame", gettext("Frames are JSON in text."))
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("bad_frame", gettext("The frame is not JSON.")) from None
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise Refused("bad_frame", gettext("A frame is an object with a type."))
    return frame


def reference(frame: Frame | None) -> str | None:
    """What an error refers to: the frame's `id`, else its `job`, else nothing."""
    for name in ("id", "job"):
        value = (frame or {}).get(name)
        if isinstance(value, str):
            return storable(value[:100])
    return None


def uuid_of(frame: Frame, name: str) -> UUID:
    found = optional_uuid(frame, name)
    if found is None:
        words = gettext("A %(type)s frame needs %(name)s.")
        raise Refused("bad_frame", words % {"type": frame["type"][:30], "name": name})
    return found


def optional_uuid(frame: Frame, name: str) -> UUID | None:
    value = frame.get(name)
    if value is None:
        return None
    try:
        return UUID(value) if isinstance(value, str) else _no_uuid(name)
    except ValueError:
        return _no_uuid(name)


def _no_uuid(name: str) -> UUID:
    raise Refused("bad_frame", gettext("%(name)s must be a UUID.") % {"name": name})


def text_of(frame: Frame, name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise Refused("bad_frame", gettext("%(name)s must be text.") % {"name": name})
    return value


def optional_text(frame: Frame, name: str) -> str | None:
    return None if frame.get(name) is None else text_of(frame, name)


def params_of(frame: Frame) -> dict[str, object]:
    value = frame.get("params")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused("bad_params", gettext("params must be an object."))
    return value


def whole_number(frame: Frame, name: str, default: int | None = None) -> int:
    value = frame.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SEQ:
        raise Refused("bad_frame", gettext("%(name)s must be a whole number, 0 or more.") % {"name": name})
    return value
