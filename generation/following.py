"""FollowingConsumer: a socket that follows jobs. It sends their frames and knows nothing of what a client asks."""

import json
import logging
import time
from typing import Any
from uuid import UUID

import redis
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError, InterfaceError
from django.utils import translation

from generation.admission import Refused
from generation.delivery import stream
from generation.delivery.hub import hub
from generation.delivery.reader import ENDS, WINDOW, JobReader
from generation.delivery.rows import in_database
from generation.frames import Frame
from generation.languages import language_of
from generation.models import Job
from generation.sessions import SignIn
from generation.told import told

logger = logging.getLogger(__name__)

MAX_FOLLOWED = 200

_unknown_kinds: set[str] = set()


def _warn_of(kind: str) -> None:
    """Once: during an upgrade a newer worker may send such a message with every token, to every socket."""
    if kind not in _unknown_kinds:
        _unknown_kinds.add(kind)
        logger.warning("group messages of the unknown type %r are ignored", kind)


class FollowingConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    sign_in: SignIn
    conversation: UUID | None = None
    window: int | None = WINDOW
    language = "en"
    """The person's. What the hub sends through this socket is said in the hub's task, which has no language."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._readers: dict[UUID, JobReader] = {}
        self._described: dict[UUID, Frame] = {}
        self._last_sent = time.monotonic()
        self._closed = False

    def describe(self, job: Job) -> Frame:
        """What `queued` says beside the place: message, reply, client_id, text, and a conversation."""
        return {
            "message": None,
            "reply": None,
            "client_id": str(job.client_id) if job.client_id else None,
            "text": job.messages[-1]["content"] if job.messages else "",
        }

    async def deliver(self, job_id: UUID, frame: Frame) -> None:
        """A frame about a followed job, in order, on its way to the client."""
        await self.send_frame(frame)

    async def __call__(self, scope: Any, *args: Any) -> None:
        self.language = language_of(scope)
        try:
            # What is awaited here, and what it runs in threads, speaks that language; no other task does.
            with translation.override(self.language):
                await super().__call__(scope, *args)
        finally:
            # Also after an error or a cancellation, when nothing calls `disconnect`.
            self._closed = True
            hub().remove_socket(self)
            for reader in self._readers.values():
                reader.ended = True
                hub().remove(reader)

    async def disconnect(self, code: int) -> None:
        self._closed = True
        hub().remove_socket(self)
        for job_id in list(self._readers):
            await self._unfollow(job_id)

    async def send_frame(self, frame: Frame) -> None:
        if not self._closed:
            self._last_sent = time.monotonic()
            try:
                await self.send(text_data=json.dumps(frame, ensure_ascii=False, separators=(",", ":")))
            except (RuntimeError, OSError) as error:
                # The client has gone, servers differ in how they say so. What it sent before that is still handled.
                logger.debug("a frame was not sent: %r", error)

    # From the channel layer. A client's "type" never gets here: only these names are handled.

    async def dispatch(self, message: dict[str, Any]) -> None:
        kind = message.get("type", "")
        if kind.startswith("websocket."):
            await super().dispatch(message)
        elif self._closed:
            return
        elif not await self.group_message(message):
            _warn_of(kind)

    async def group_message(self, message: dict[str, Any]) -> bool:
        """Handle a message of a group this socket joined; whether its type is known."""
        if message["type"] not in ("job.token", "job.prefill", "job.changed"):
            return False
        reader = self._readers.get(UUID(message["job"]))
        if reader is not None:
            try:
                await reader.message(message)
            except (DatabaseError, InterfaceError, redis.RedisError, OSError) as error:
                logger.warning("a message of job %s was left for the next tick: %r", message["job"], error)
        return True

    async def follow(
        self, job: Job, after: int = 0, origin: int | None = None, *, announce_queued: bool = False
    ) -> None:
        """Follow the job, anew if it is followed; `announce_queued` begins with `queued` whatever its state."""
        if announce_queued and job.pk in self._readers and not self._readers[job.pk].ended:
            await self._readers[job.pk].restate()
            return
        if len(self._readers) >= MAX_FOLLOWED:
            words = translation.gettext("A socket follows at most %(limit)s jobs.")
            raise Refused("bad_frame", words % {"limit": MAX_FOLLOWED})
        await self._unfollow(job.pk)
        self._described[job.pk] = await in_database(self.describe, job)

        async def send(frame: Frame) -> None:
            await self._deliver(job.pk, frame)

        reader = JobReader(
            job.pk, send, after=after, origin=origin, window=self.window, announce_queued=announce_queued
        )
        self._readers[job.pk] = reader
        try:
            await self.channel_layer.group_add(stream.group(job.pk), self.channel_name)
        except (redis.RedisError, OSError) as error:
            logger.warning("job %s is followed by the tick alone: %r", job.pk, error)
        hub().add(reader)
        try:
            await reader.start()
        except (DatabaseError, InterfaceError, redis.RedisError, OSError) as error:
            # No refusal: what was asked for is done, and the reader goes on at the next tick.
            logger.warning("job %s is read from the next tick on: %r", job.pk, error)

    async def _unfollow(self, job_id: UUID) -> None:
        reader = self._readers.pop(job_id, None)
        self._described.pop(job_id, None)
        if reader is not None:
            reader.ended = True
            hub().remove(reader)
            try:
                await self.channel_layer.group_discard(stream.group(job_id), self.channel_name)
            except (redis.RedisError, OSError) as error:
                logger.debug("group of job %s not left: %r", job_id, error)

    async def _deliver(self, job_id: UUID, frame: Frame) -> None:
        described = self._described.get(job_id, {})
        frame["conversation"] = described.get("conversation") or (str(self.conversation) if self.conversation else None)
        if frame["type"] == "queued":
            frame |= described
        if frame.get("message") and frame["type"] in ENDS:
            with translation.override(self.language):
                frame["message"] = told(frame["message"])
        await self.deliver(job_id, frame)
        if frame["type"] in ENDS:
            await self._unfollow(job_id)

    async def acknowledged(self, job_id: UUID, seq: int) -> None:
        """The client has applied everything of this job up to seq."""
        if reader := self._readers.get(job_id):
            try:
                await reader.acknowledge(seq)
            except (DatabaseError, InterfaceError, redis.RedisError, OSError) as error:
                # The client was heard; what it has room for now comes with the next tick.
                logger.warning("job %s is read from the next tick on: %r", job_id, error)
