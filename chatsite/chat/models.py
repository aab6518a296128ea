"""Conversations and their messages.

A message knows its parent, so edits and other replies are branches of one tree. A reply's text is that of its
jobs, in order: while one runs, its text is in the job's stream, and afterwards in the job's row.
"""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


class Kept(models.Manager["Conversation"]):
    """Those that nobody deleted; the others are gone for everybody, until they are restored or swept away."""

    def get_queryset(self) -> models.QuerySet["Conversation"]:
        return super().get_queryset().filter(deleted_at=None)


MAX_WORD_LENGTH = 500
MAX_MODEL_LENGTH = 100


class Preferences(models.Model):
    """What a person sets. Whatever is empty is the site's own default; `preferences.py` reads and writes it."""

    model = models.CharField(max_length=MAX_MODEL_LENGTH, blank=True, default="", db_default="")
    system_prompt = models.TextField(blank=True, default="", db_default="")
    params = models.JSONField(null=True, blank=True, help_text="as in the protocol, only what was set")

    class Meta:
        abstract = True


class Conversation(Preferences):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="conversations", db_index=False)
    title = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now_add=True, help_text="last prompt")
    shown_leaf = models.UUIDField(
        null=True, editable=False, help_text="the end of the branch that was shown or asked last; else the newest"
    )
    title_edited = models.BooleanField(default=False, db_default=False, help_text="by a person; no model changes it")
    pinned_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="soon swept away, unless it is restored")

    objects = Kept()
    with_deleted: models.Manager["Conversation"] = models.Manager()

    class Meta:
        indexes = [
            models.Index(fields=["user", "-updated_at"], name="conversation_newest"),
            # A page of the list begins where the one before it ended.
            models.Index(
                fields=["user", "-updated_at", "-id"],
                name="conversation_list",
                condition=Q(deleted_at__isnull=True, pinned_at__isnull=True),
            ),
            models.Index(
                fields=["user", "-pinned_at"],
                name="conversation_pinned",
                condition=Q(deleted_at__isnull=True, pinned_at__isnull=False),
            ),
            models.Index(fields=["deleted_at"], name="conversation_deleted", condition=Q(deleted_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.title or str(self.id)

    def get_absolute_url(self) -> str:
        return f"/c/{self.id}/"


class PersonPreferences(Preferences):
    """What each new conversation of a person begins with."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="+")

    class Meta:
        verbose_name_plural = "preferences of persons"

    def __str__(self) -> str:
        return str(self.user_id)


class Message(models.Model):
    class Role(models.TextChoices):
        USER = "user", "user"
        ASSISTANT = "assistant", "assistant"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="messages")
    parent = models.ForeignKey("self", models.CASCADE, null=True, blank=True, related_name="children")
    role = models.CharField(max_length=10, choices=Role.choices)
    text = models.TextField(blank=True, help_text="a person's words; empty for a reply, whose jobs hold them")
    created_at = models.DateTimeField(auto_now_add=True)
    context_cleared = models.BooleanField(
        default=False, db_default=False, help_text="prompts below it carry neither this message nor what stands above"
    )

    class Meta:
        ordering = ["created_at", "id"]

    def __str__(self) -> str:
        return f"{self.role}: {self.text[:60]}"


class ReplyJob(models.Model):
    """One job that wrote a part of a reply: the first, or one that continued it."""

    message = models.ForeignKey(Message, models.CASCADE, related_name="parts")
    job = models.OneToOneField("generation.Job", models.PROTECT, related_name="reply_part")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.message_id} ← {self.job_id}"


class Feedback(models.Model):
    """What one person thinks of a reply."""

    class Verdict(models.TextChoices):
        UP = "up", "up"
        DOWN = "down", "down"

    message = models.ForeignKey(Message, models.CASCADE, related_name="feedback", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="feedback")
    verdict = models.CharField(max_length=4, choices=Verdict.choices)
    word = models.CharField(max_length=MAX_WORD_LENGTH, blank=True, help_text="why, if the person said so")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "feedback"
        constraints = [models.UniqueConstraint(fields=["message", "user"], name="feedback_once_per_person")]
        indexes = [models.Index(fields=["-updated_at"], name="feedback_newest")]

    def __str__(self) -> str:
        return f"{self.verdict}: {self.word}" if self.word else self.verdict


class TitleJob(models.Model):
    """The job that writes a conversation's title; asked for once."""

    conversation = models.OneToOneField(Conversation, models.CASCADE, related_name="title_job")
    job = models.OneToOneField("generation.Job", models.CASCADE, related_name="title_of")

    def __str__(self) -> str:
        return f"title of {self.conversation_id} ← {self.job_id}"


class Passage(models.Model):
    """What search finds: a title (neither message nor part), a message's own text, or what one job wrote of a reply.

    `words` are normalised (`search.py`), and both databases index them with means of their own.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="passages")
    message = models.OneToOneField(Message, models.CASCADE, null=True, related_name="passage")
    part = models.OneToOneField(ReplyJob, models.CASCADE, null=True, related_name="passage")
    words = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation"], name="passage_of_a_title", condition=Q(message=None, part=None)
            )
        ]

    def __str__(self) -> str:
        return self.words[:60]
