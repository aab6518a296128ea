"""The list of jobs and a job's page.

Prompts and replies are shown as plain text, whatever is in them.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator

from generation import conf, line, overview
from generation.admin.read_only import span
from generation.admin.steering import JobSteering
from generation.models import Job

NONE = "–"
MAX_PEOPLE = 500
"""A search that fits more names than this shows the jobs of so many."""


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


class ModelFilter(admin.SimpleListFilter):
    """Offers the configured models; the distinct ones of the table would need a scan."""

    title = "model"
    parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in conf.models()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset.filter(model=self.value()) if self.value() else queryset


class WorkerFilter(admin.SimpleListFilter):
    """Offers the live workers; an address may name any other."""

    title = "worker"
    parameter_name = "worker"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(worker.id), str(worker)) for worker in overview.live_workers()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        if not self.value():
            return queryset
        identifier = _uuid(self.value() or "")
        return queryset.filter(worker=identifier) if identifier else queryset.none()


class JobChangeList(ChangeList):
    """A page of jobs, each with its `place` in line, looked up once per queue on the page."""

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Job]:
        rows: QuerySet[Job] = super().get_queryset(*args, **kwargs)
        return rows.defer("text", "error_traceback")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        jobs: list[Job] = list(self.result_list)
        waiting = [job for job in jobs if job.state == Job.State.QUEUED]
        places: dict[UUID, int] = {}
        for name in {job.queue_id for job in waiting}:
            places |= line.places([job for job in waiting if job.queue_id == name])
        for job in jobs:
            job.place = places.get(job.pk)  # type: ignore[attr-defined]
        self.result_list = jobs


@admin.register(Job)
class JobAdmin(JobSteering):
    list_display = (
        "short_id",
        "state",
        "place",
        "prompt",
        "user",
        "model",
        "waited",
        "tokens",
        "speed",
        "created",
    )
    list_filter = ("state", ModelFilter, "queue", WorkerFilter, "created_at")
    list_select_related = ("user",)
    ordering = ("-created_at",)
    sortable_by = ("created",)  # the others have no index to sort a large table by
    search_help_text = "A person's name, or the id of a job, a prompt or a task; of a job its beginning will do."
    readonly_fields = ("place", "conversation", "reply", "waited", "tokens", "speed", "task", "traceback")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobChangeList

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        error = ["error_code", "error_message"]
        if request.user.is_superuser:
            error.append("traceback")
        return [
            (None, {"fields": ["id", "state", "place", "user", "model", "queue", "priority"]}),
            ("Run", {"fields": ["worker", "task", "epoch", "attempt"]}),
            ("Conversation", {"fields": ["conversation", "reply", "finish_reason"]}),
            ("Figures", {"fields": ["waited", "tokens", "speed", "timings", "params"]}),
            ("Error", {"fields": error}),
            ("Instants", {"fields": ["created_at", "queued_at", "first_started_at", "started_at",
                                     "cancel_requested_at", "ended_at"]}),
            ("Delivery", {"fields": ["client_id", "origin", "last_seq"]}),
        ]  # fmt: skip

    def has_delete_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """An ended job may be deleted, and with it its person; one that waits or runs is cancelled first."""
        return obj is not None and obj.is_final and admin.ModelAdmin.has_delete_permission(self, request, obj)

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return [f"user__{get_user_model().USERNAME_FIELD}"]  # so that there is a search box

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """Each term is one stretch of an index: a join or a scan of all jobs would take seconds once there are many."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if identifier := _uuid(term):
            by_id = Q(pk=identifier) | Q(client_id=identifier) | Q(task_id=str(identifier))
            return queryset.filter(by_id), False
        users = get_user_model()._default_manager.filter(**{f"{get_user_model().USERNAME_FIELD}__icontains": term})
        found = Q(user_id__in=list(users.values_list("pk", flat=True)[:MAX_PEOPLE]))
        digits = term.replace("-", "")
        if 6 <= len(digits) < 32 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            found |= Q(pk__range=(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))))
        return queryset.filter(found), False

    @admin.display(description="job", ordering="id")
    def short_id(self, job: Job) -> str:
        return str(job.pk)[:8]

    @admin.display(description="place")
    def place(self, job: Job) -> str:
        if job.state != Job.State.QUEUED:
            return NONE
        place = job.place if hasattr(job, "place") else line.position_of(job)
        return str(place or NONE)

    @admin.display
    def prompt(self, job: Job) -> str:
        text = next(
            (str(each.get("content", "")) for each in reversed(job.messages) if each.get("role") == "user"),
            "",
        )
        return Truncator(" ".join(text[:400].split())).chars(80)

    @admin.display
    def waited(self, job: Job) -> str:
        return span(overview.waited(job, timezone.now()))

    @admin.display(description="in + out")
    def tokens(self, job: Job) -> str:
        return f"{job.prompt_tokens:,} + {job.completion_tokens:,}" if job.prompt_tokens else NONE

    @admin.display(description="tokens/s")
    def speed(self, job: Job) -> str:
        tokens = overview.tokens_per_second(job)
        return NONE if tokens is None else f"{tokens:.1f}"

    @admin.display(ordering="created_at")
    def created(self, job: Job) -> str:
        return date_format(timezone.localtime(job.created_at), "j M, H:i")

    @admin.display
    def conversation(self, job: Job) -> str:
        return format_html_join(
            "\n",
            '<p><strong>{}</strong></p><pre style="white-space: pre-wrap">{}</pre>',
            ((each.get("role", "?"), each.get("content", "")) for each in job.messages),
        )

    @admin.display
    def reply(self, job: Job) -> str:
        return format_html('<pre style="white-space: pre-wrap">{}</pre>', job.text)

    @admin.display
    def traceback(self, job: Job) -> str:
        return format_html("<pre>{}</pre>", job.error_traceback) if job.error_traceback else NONE

    @admin.display
    def task(self, job: Job) -> str:
        flower = getattr(settings, "GENERATION_FLOWER_URL", "")
        if not (job.task_id and flower):
            return job.task_id or NONE
        return format_html('<a href="{}/task/{}">{}</a>', flower.rstrip("/"), job.task_id, job.task_id)
