"""Conversations and feedback in the admin: to read, never to write."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from chatsite.chat.models import Conversation, Feedback, Message
from chatsite.chat.threads import reply_text
from generation.admin.read_only import ReadOnlyAdmin

# Generic for the type checker only; at run time the class takes no parameter.
if TYPE_CHECKING:
    _TabularInline = admin.TabularInline[Message, Conversation]
else:
    _TabularInline = admin.TabularInline


class MessageInline(_TabularInline):
    """The messages of a conversation in the order they were written, all branches."""

    model = Message
    fields = readonly_fields = ("created_at", "role", "words", "state")
    extra = 0
    can_delete = False
    ordering = ("created_at", "id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        return super().get_queryset(request).prefetch_related("parts__job")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display
    def words(self, message: Message) -> str:
        return format_html('<pre style="white-space: pre-wrap">{}</pre>', reply_text(message))

    @admin.display
    def state(self, message: Message) -> str:
        return ", ".join(part.job.state for part in message.parts.all())


@admin.register(Conversation)
class ConversationAdmin(ReadOnlyAdmin):
    list_display = ("title_or_id", "user", "created_at", "updated_at")
    list_select_related = ("user",)
    search_fields = ("title", "user__username")
    ordering = ("-updated_at",)
    fields = readonly_fields = ("id", "title", "user", "created_at", "updated_at", "model", "system_prompt", "params")
    inlines = (MessageInline,)

    @admin.display(description="title", ordering="title")
    def title_or_id(self, conversation: Conversation) -> str:
        return str(conversation)


@admin.register(Feedback)
class FeedbackAdmin(ReadOnlyAdmin):
    """Thumbs up and down, each with its conversation and the job that wrote the reply."""

    list_display = ("updated_at", "verdict", "word", "user", "conversation", "job")
    list_filter = ("verdict",)
    list_select_related = ("user", "message__conversation")
    search_fields = ("word", "user__username")
    ordering = ("-updated_at",)
    fields = readonly_fields = ("verdict", "word", "user", "updated_at", "conversation", "job", "reply")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feedback]:
        return super().get_queryset(request).prefetch_related("message__parts")

    @admin.display
    def conversation(self, feedback: Feedback) -> str:
        found = feedback.message.conversation
        return format_html('<a href="{}">{}</a>', reverse("admin:chat_conversation_change", args=[found.pk]), found)

    @admin.display
    def job(self, feedback: Feedback) -> str:
        """The last of the reply's jobs."""
        parts = list(feedback.message.parts.all())
        if not parts:
            return ""
        job = parts[-1].job_id
        return format_html('<a href="{}">{}</a>', reverse("admin:generation_job_change", args=[job]), str(job)[:8])

    @admin.display
    def reply(self, feedback: Feedback) -> str:
        return format_html('<pre style="white-space: pre-wrap">{}</pre>', reply_text(feedback.message))
