"""The lists of queues and workers; of all that they show, people edit a queue's limits only."""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from generation import conf, overview
from generation.admin.read_only import span
from generation.admin.steering import QueueSteering, WorkerSteering
from generation.models import Queue, Worker


class QueueForm(forms.ModelForm):  # type: ignore[type-arg]
    """A queue's own limits; whatever is left empty is the setting's."""

    max_size = forms.IntegerField(required=False, min_value=0, max_value=10_000_000)
    max_wait_seconds = forms.FloatField(required=False, min_value=1, max_value=366 * 86_400)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in (("max_size", conf.max_queue_size()), ("max_wait_seconds", conf.max_wait_seconds())):
            if name in self.fields:
                self.fields[name].help_text = f"empty: the setting's value, {value:,g}"


@admin.register(Queue)
class QueueAdmin(QueueSteering):
    list_display = ("name", "status", "waiting", "running", "size_limit", "wait_limit")
    fields = ("name", "status", "waiting", "running", "max_size", "max_wait_seconds")
    readonly_fields = ("name", "status", "waiting", "running")
    form = QueueForm

    def get_queryset(self, request: HttpRequest) -> QuerySet[Queue]:
        return overview.queues()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_change_permission(self, request, obj)

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: bool) -> None:
        """Only what was edited: claims move the row's virtual time meanwhile, and another may have paused it."""
        if form.changed_data:
            obj.save(update_fields=form.changed_data)

    @admin.display
    def status(self, row: Queue) -> str:
        if row.paused:
            return "paused"
        configured = any(spec.queue == row.name for spec in conf.models().values())
        return "open" if configured else "no model here"

    @admin.display
    def waiting(self, row: Queue) -> str:
        return f"{row.waiting:,}"  # type: ignore[attr-defined]

    @admin.display
    def running(self, row: Queue) -> str:
        return f"{row.running:,}"  # type: ignore[attr-defined]

    @admin.display(description="most waiting")
    def size_limit(self, row: Queue) -> str:
        return f"{conf.max_queue_size():,} (setting)" if row.max_size is None else f"{row.max_size:,}"

    @admin.display(description="longest wait")
    def wait_limit(self, row: Queue) -> str:
        own = row.max_wait_seconds
        text = span(timedelta(seconds=conf.max_wait_seconds() if own is None else own))
        return f"{text} (setting)" if own is None else text


@admin.register(Worker)
class WorkerAdmin(WorkerSteering):
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
