"""The chat's socket: a conversation's prompts and replies, to every tab that shows it."""

import logging
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import redis
from django.db import transaction

from chatsite.chat import conversations, news, preferences
from chatsite.chat.conversations import NEWEST, Asked
from chatsite.chat.html_reply import HtmlReply
from chatsite.chat.models import Conversation, ReplyJob
from chatsite.chat.preferences import Chosen
from generation import frames
from generation.admission import Refused
from generation.consumers import NOT_FOUND, Closing, JobConsumer
from generation.delivery import stream
from generation.delivery.reader import ENDS
from generation.delivery.rows import in_database
from generation.frames import Frame
from generation.models import Job

logger = logging.getLogger(__name__)


class ChatConsumer(JobConsumer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._html: dict[UUID, HtmlReply] = {}
        self._wants_html = False
        self._greeted_with: set[str] = set()

    def open(self) -> None:
        query = parse_qs(self.scope["query_string"].decode("latin-1"))
        self._wants_html = query.get("html") == ["1"]
        if self._wants_html:
            self.window = None  # html frames have a window of their own
        wanted = self.scope["url_route"]["kwargs"].get("conversation")
        if wanted is not None:
            if not Conversation.objects.filter(pk=wanted, user_id=self.sign_in.user_id).exists():
                raise Closing(NOT_FOUND)
            self.conversation = wanted

    async def opened(self) -> None:
        if self.conversation is not None:
            await self._join()

    async def _join(self) -> None:
        assert self.conversation is not None
        try:
            await self.channel_layer.group_add(news.group(self.conversation), self.channel_name)
        except (redis.RedisError, OSError) as error:
            logger.warning("other tabs' prompts are not heard of: %r", error)

    async def disconnect(self, code: int) -> None:
        for html in self._html.values():
            html.close()
        if self.conversation is not None:
            try:
                group = news.group(self.conversation)
                await self.channel_layer.group_discard(group, self.channel_name)
            except (redis.RedisError, OSError) as error:
                logger.debug("a conversation's group was not left: %r", error)
        await super().disconnect(code)

    def accept_prompt(self, frame: Frame) -> Job:
        user = self.scope["user"]
        asked = Asked(
            client_id=frames.uuid_of(frame, "id"),
            model=frames.optional_text(frame, "model"),
            params=frames.params_of(frame),
        )
        if frame["type"] == "prompt":
            parent = frames.optional_uuid(frame, "parent") if "parent" in frame else NEWEST
            text = frames.text_of(frame, "text")
            return conversations.prompt(user, self.conversation, text, parent, asked, self._settings_of(frame))
        message = frames.uuid_of(frame, "message")
        act = conversations.regenerate if frame["type"] == "regenerate" else conversations.go_on
        return act(user, self.conversation, message, asked)

    def _settings_of(self, frame: Frame) -> Chosen | None:
        """What a conversation begins with that this prompt begins; None for what its person set as a default."""
        if self.conversation is not None or frame.get("settings") is None:
            return None
        try:
            return preferences.from_json(frame["settings"], preferences.of_person(self.sign_in.user_id))
        except preferences.BadPreferences as bad:
            raise Refused("bad_params", str(bad)) from None

    def greeting(self) -> Frame:
        """What was set for this conversation, or for each new one, and the title that it has by now."""
        found = Conversation.objects.filter(pk=self.conversation).first() if self.conversation else None
        chosen = Chosen.of(found) if found else preferences.of_person(self.sign_in.user_id)
        settings = {"model": chosen.model, "changed": bool(chosen.system_prompt or chosen.params)}
        return {"settings": settings} | ({"title": found.title} if found else {})

    async def accepted(self, job: Job) -> None:
        conversation = await in_database(_conversation_of, job)
        if self.conversation is None:
            self.conversation = conversation
            await self._join()
        # The same id may come again on a socket of another conversation: its frames say which one they belong to.
        if conversation == self.conversation:
            # Before anything is read here, which may take as long as the reply.
            await self._tell_others(job)
        await super().accepted(job)

    async def _tell_others(self, job: Job) -> None:
        assert self.conversation is not None
        try:
            await self.channel_layer.group_send(
                news.group(self.conversation),
                {"type": "conversation.job", "job": str(job.pk), "from": self.channel_name},
            )
        except (redis.RedisError, OSError) as error:
            logger.warning("other tabs were not told of a prompt: %r", error)

    async def group_message(self, message: dict[str, Any]) -> bool:
        if message["type"] == "conversation.news":
            await self.send_frame({**message["frame"], "conversation": str(self.conversation)})
            return True
        if message["type"] != "conversation.job":
            return await super().group_message(message)
        # What stood in `hello` is known to the client, which may have seen a part of it on an earlier socket.
        if message["from"] != self.channel_name and message["job"] not in self._greeted_with:
            job = await in_database(self.find, UUID(message["job"]))
            if job is not None:
                await self.follow(job, announce_queued=True)
        return True

    def find(self, job_id: UUID) -> Job | None:
        if self.conversation is None:
            return None
        return Job.objects.filter(
            pk=job_id, user_id=self.sign_in.user_id, reply_part__message__conversation_id=self.conversation
        ).first()

    def describe(self, job: Job) -> Frame:
        part = ReplyJob.objects.select_related("message__parent").get(job=job)
        question = part.message.parent
        return {
            "conversation": str(part.message.conversation_id),
            "message": str(question.pk) if question else None,
            "parent": str(question.parent_id) if question and question.parent_id else None,
            "reply": str(part.message_id),
            "client_id": str(job.client_id) if job.client_id else None,
            "text": question.text if question else "",
            "model": job.model,
        }

    def active_jobs(self) -> list[Frame]:
        if self.conversation is None:
            return []
        parts = ReplyJob.objects.filter(
            message__conversation_id=self.conversation,
            job__state__in=[Job.State.QUEUED, Job.State.RUNNING],
        ).select_related("job", "message")
        self._greeted_with = {str(part.job_id) for part in parts}
        return [
            {
                "job": str(part.job_id),
                "message": str(part.message.parent_id),
                "reply": str(part.message_id),
                "state": part.job.state,
                "seq": _newest_seq(part.job_id),
            }
            for part in parts
        ]

    async def follow(
        self, job: Job, after: int = 0, origin: int | None = None, *, announce_queued: bool = False
    ) -> None:
        if self._wants_html and not (announce_queued and job.pk in self._html):
            # Blocks can be changed only by who has them all: an HTML reply is always read from its beginning.
            after, origin = 0, None
            prefix = await in_database(_text_before, job)
            about = {"job": str(job.pk), "conversation": str(await in_database(_conversation_of, job))}

            async def send(frame: Frame) -> None:
                await self.send_frame({**frame, **about})

            if job.pk in self._html:
                self._html[job.pk].close()
            self._html[job.pk] = HtmlReply(prefix, send, self.language)
        await super().follow(job, after, origin, announce_queued=announce_queued)

    async def deliver(self, job_id: UUID, frame: Frame) -> None:
        html = self._html.get(job_id)
        if html is None:
            await super().deliver(job_id, frame)
        elif frame["type"] == "token":
            html.token(frame["seq"], frame["text"])
        elif frame["type"] == "snapshot":
            await html.snapshot(frame["seq"], frame["text"])
        else:
            if frame["type"] in ENDS:
                await html.end()
                del self._html[job_id]
            await super().deliver(job_id, frame)

    async def acknowledged(self, job_id: UUID, seq: int) -> None:
        if html := self._html.get(job_id):
            await html.acknowledge(seq)
        else:
            await super().acknowledged(job_id, seq)


def _conversation_of(job: Job) -> UUID:
    found: UUID = ReplyJob.objects.values_list("message__conversation_id", flat=True).get(job=job)
    return found


def _newest_seq(job_id: UUID) -> int:
    try:
        newest = stream.sync_client().xrevrange(stream.tokens_key(job_id), count=1)
    except redis.RedisError:
        return 0
    return int(newest[0][0].partition(b"-")[0]) if newest else 0


def _text_before(job: Job) -> str:
    """What the reply's earlier jobs wrote."""
    with transaction.atomic():
        part = ReplyJob.objects.get(job=job)
        earlier = ReplyJob.objects.filter(message_id=part.message_id, pk__lt=part.pk).select_related("job")
        return "".join(each.job.text for each in earlier)
