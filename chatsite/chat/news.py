"""News of a conversation to every tab that shows it: frames over its channel group.

They may be lost: the rows are the truth, and a reload shows it.
"""

from typing import Any
from uuid import UUID

from generation import notices
from generation.frames import Frame


def group(conversation_id: UUID) -> str:
    return f"conversation.{conversation_id}"


def tell(conversation_id: UUID, kind: str, **fields: Any) -> None:
    """Send a frame of this kind, after the commit of what it tells."""
    frame: Frame = {"type": kind, **fields}
    notices.tell(group(conversation_id), {"type": "conversation.news", "frame": frame})
