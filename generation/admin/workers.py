"""The lists of queues and workers, read-only."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from generation import overview
from generation.admin.read_only import ReadOnlyAdmin, span
from generation.models import Queue, Worker


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    list_display = ("name", "paused", "waiting", "running", "max_size", "max_wait_seconds")
    readonly_fields = ("waiting", "running")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Queue]:
        return overview.queues()

    @admin.display
    def waiting(self, row: Queue) -> int:
        return int(row.waiting)  # type: ignore[attr-defined]

    @admin.display
    def running(self, row: Queue) -> int:
        return int(row.running)  # type: ignore[attr-defined]


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "queue", "status", "model_states", "load", "seen", "started_at")
    list_filter = ("queue", "draining")
    ordering = ("-last_seen_at",)
    fieldsets = (
        (None, {"fields": ("status", "queue", "model_states", "load", "running_jobs")}),
        ("Process", {"fields": ("hostname", "host", "pid", "pid_started", "boot_id", "pid_namespace", "redis_id")}),
        ("Instants", {"fields": ("started_at", "seen", "stopped_at")}),
    )
    readonly_fields = ("status", "model_states", "load", "seen", "running_jobs")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return overview.workers()

    @admin.display
    def status(self, worker: Worker) -> str:
        if worker.stopped_at is not None:
            return "stopped"
        if not worker.live:  # type: ignore[attr-defined]
            return "silent"
        return "draining" if worker.draining else "live"

    @admin.display(description="models")
    def model_states(self, worker: Worker) -> str:
        texts = (f"{model['name']}: {model['state']} {model.get('error') or ''}".strip() for model in worker.models)
        return format_html_join("\n", "<div>{}</div>", ((text,) for text in texts)) or "–"

    @admin.display(description="busy / slots")
    def load(self, worker: Worker) -> str:
        return f"{worker.busy} / {worker.slots}"

    @admin.display(description="last seen", ordering="last_seen_at")
    def seen(self, worker: Worker) -> str:
        return f"{span(worker.silence)} ago"  # type: ignore[attr-defined]

    @admin.display(description="jobs")
    def running_jobs(self, worker: Worker) -> str:
        address = reverse("admin:generation_job_changelist")
        return format_html('<a href="{}?worker={}">its jobs</a>', address, worker.pk)
