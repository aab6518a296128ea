"""JobConsumer: the WebSocket protocol for any Django site. It knows jobs and frames, no conversations or pages.

A subclass says what a prompt means (`accept_prompt`), what else `queued` and `hello` tell (`describe`, `greeting`) and
which jobs may be followed here (`find`). As it stands each prompt is a question of its own.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import redis
from django.db import DatabaseError, InterfaceError
from django.utils.translation import gettext

from generation import admission, conf, frames, overview, queue
from generation.admission import Refused
from generation.delivery.hub import hub
from generation.delivery.rows import in_database
from generation.following import FollowingConsumer
from generation.frames import Frame
from generation.models import Job
from generation.offers import offers
from generation.outages import Problem, status_frame
from generation.sessions import ended, read_sign_in

logger = logging.getLogger(__name__)

SIGNED_OUT, NOT_FOUND, TOO_LARGE, TOO_MANY_SOCKETS = 4401, 4404, 4413, 4429
HEARTBEAT_SECONDS = 15.0
MAX_SOCKETS_PER_USER = 50


class Closing(Exception):
    """Ends the socket with a close code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class JobConsumer(FollowingConsumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_greeted = False
        self._client_frames: dict[str, Callable[[Frame], Awaitable[None]]] = {
            "prompt": self._on_prompt,
            "regenerate": self._on_prompt,
            "continue": self._on_prompt,
            "follow": self._on_follow,
            "ack": self._on_ack,
            "cancel": self._on_cancel,
            "models": self._on_models,
        }

    # What a subclass may say, in a database thread.

    def open(self) -> None:
        """Look at the address; raise Closing to refuse the socket."""

    def accept_prompt(self, frame: Frame) -> Job:
        """Submit what a `prompt`, `regenerate` or `continue` frame asks for; raises Refused."""
        if frame["type"] != "prompt":
            raise Refused("bad_frame", gettext("There is no %(type)s here.") % {"type": frame["type"]})
        return queue.submit(
            self.scope["user"],
            [{"role": "user", "content": frames.text_of(frame, "text")}],
            model=frames.optional_text(frame, "model"),
            params=frames.params_of(frame),
            client_id=frames.uuid_of(frame, "id"),
        )

    def find(self, job_id: UUID) -> Job | None:
        """The job if it may be followed on this socket: a foreign one is like none."""
        return Job.objects.filter(pk=job_id, user_id=self.sign_in.user_id).first()

    def active_jobs(self) -> list[Frame]:
        """The unfinished jobs of this socket's conversation, for `hello`."""
        return []

    def greeting(self) -> Frame:
        """What else `hello` says."""
        return {}

    # Connection.

    async def connect(self) -> None:
        await self.accept()
        user = self.scope.get("user")
        if user is None or not await in_database(lambda: user.is_authenticated and user.is_active):
            await self._end(SIGNED_OUT)
            return
        self.sign_in = await in_database(read_sign_in, self.scope)
        if hub().num_sockets_of(self.sign_in.user_id) >= MAX_SOCKETS_PER_USER:
            await self._end(TOO_MANY_SOCKETS)
            return
        hub().add_socket(self)  # nothing is awaited since the count, so that it is exact
        try:
            await in_database(self.open)
            hello = await in_database(self._hello)
        except Closing as closing:
            await self._end(closing.code)
            return
        await self.opened()
        await self.send_frame(hello)
        self._is_greeted = True
        if problems := hub().problems:
            await self.tell_problems(problems)

    async def opened(self) -> None:
        """Join what else this socket listens to."""

    def _hello(self) -> Frame:
        return {
            "type": "hello",
            "protocol": 1,
            "user": str(self.sign_in.user_id),
            "conversation": str(self.conversation) if self.conversation else None,
            "models": offers(),
            "limits": {
                "max_prompt_chars": conf.max_prompt_chars(),
                "max_new_tokens": conf.max_new_tokens(),
                "messages_per_minute": conf.messages_per_minute(),
                "max_jobs_per_user": conf.max_jobs_per_user(),
            },
            "workers": overview.live_workers().count(),
            "active": self.active_jobs(),
            **self.greeting(),
        }

    async def signed_out(self) -> None:
        await self._end(SIGNED_OUT)

    async def tell_problems(self, problems: tuple[Problem, ...]) -> None:
        if self._is_greeted:
            await self.send_frame(status_frame(problems, self.language))

    async def _end(self, code: int) -> None:
        if not self._closed:
            self._closed = True
            hub().remove_socket(self)
            for reader in self._readers.values():
                reader.ended = True
            await self.close(code=code)

    async def tick(self) -> None:
        if time.monotonic() - self._last_sent >= HEARTBEAT_SECONDS:
            await self.send_frame({"type": "heartbeat"})

    # From the client.

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._closed:
            return
        if len(text_data or bytes_data or "") > 6 * conf.max_prompt_chars() + 65_536:
            await self._end(TOO_LARGE)
            return
        frame: Frame | None = None
        try:
            frame = frames.parse(text_data)
            if frame["type"] != "ack" and await in_database(ended, {self.sign_in}):
                await self._end(SIGNED_OUT)
                return
            handle = self._client_frames.get(frame["type"])
            if handle is None:
                words = gettext("There is no frame type %(type)s.")
                raise Refused("bad_frame", words % {"type": repr(frame["type"][:50])})
            await handle(frame)
        except Refused as refused:
            await self.refuse(refused.code, refused.message, frame)
        except (DatabaseError, InterfaceError):
            logger.exception("a frame could not be handled")
            message = gettext("The database can't be reached just now, so nothing was done. Try again in a moment.")
            await self.refuse("queue_unavailable", message, frame)
        except (redis.RedisError, OSError):
            logger.exception("a frame could not be handled")
            message = gettext("The site can't reach its queue just now. Try again soon.")
            await self.refuse("queue_unavailable", message, frame)
        except Exception:
            logger.exception("a frame of %s could not be handled", self.sign_in.user_id)
            message = gettext("Something went wrong on our side. Try again.")
            await self.refuse("queue_unavailable", message, frame)

    async def refuse(self, code: str, message: str, frame: Frame | None) -> None:
        # What a client sent may be in the message: a lone surrogate in it could not be sent.
        message = admission.storable(message)
        await self.send_frame({"type": "error", "code": code, "message": message, "ref": frames.reference(frame)})

    async def _on_prompt(self, frame: Frame) -> None:
        frames.uuid_of(frame, "id")
        job = await in_database(self.accept_prompt, frame)
        await self.accepted(job)

    async def accepted(self, job: Job) -> None:
        """Answer an accepted prompt with `queued` and follow its job from the beginning."""
        await self.follow(job, announce_queued=True)

    async def _on_models(self, frame: Frame) -> None:
        await self.send_frame({"type": "models", "models": await in_database(offers)})

    async def _on_follow(self, frame: Frame) -> None:
        after = frames.whole_number(frame, "after", 0)
        origin = None if frame.get("origin") is None else frames.whole_number(frame, "origin")
        await self.follow(await self._found(frame), after, origin)

    async def _on_ack(self, frame: Frame) -> None:
        await self.acknowledged(frames.uuid_of(frame, "job"), frames.whole_number(frame, "seq"))

    async def _on_cancel(self, frame: Frame) -> None:
        if frame.get("job") is None:
            client_id = frames.uuid_of(frame, "id")
            job = await in_database(self._find_by_client_id, client_id)
            if job is None:
                raise Refused("not_found", gettext("There is no such prompt."))
        else:
            job = await self._found(frame)
        await in_database(queue.cancel, job)

    async def _found(self, frame: Frame) -> Job:
        job = await in_database(self.find, frames.uuid_of(frame, "job"))
        if job is None:
            raise Refused("not_found", gettext("There is no such reply."))
        return job

    def _find_by_client_id(self, client_id: UUID) -> Job | None:
        return Job.objects.filter(user_id=self.sign_in.user_id, client_id=client_id).first()
