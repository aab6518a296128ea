"""Rows: Queue, Worker and Job, and what each person may use and has used.

What they mean is here; what may happen to jobs is in `queue.py`, and to the ledger of tokens in `ledger.py`.
"""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce


class Priority(models.IntegerChoices):
    """A bounded head start in the line, never absolute: nothing starves."""

    BATCH = -1, "batch"
    NORMAL = 0, "normal"
    STAFF = 1, "staff"


class Queue(models.Model):
    """One line of waiting jobs, consumed by the workers of the Celery queue of that name."""

    name = models.CharField(max_length=64, primary_key=True)
    paused = models.BooleanField(default=False)
    max_size = models.PositiveIntegerField(null=True, blank=True, help_text="empty: the setting's value")
    max_wait_seconds = models.FloatField(null=True, blank=True, help_text="empty: the setting's value")
    virtual_time = models.BigIntegerField(default=0, editable=False)

    def __str__(self) -> str:
        return self.name


class Worker(models.Model):
    """One incarnation of a worker process; a restarted worker is another row."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    queue = models.CharField(max_length=64)
    hostname = models.CharField(max_length=255, help_text="Celery's node name")
    host = models.CharField(max_length=255)
    boot_id = models.CharField(max_length=64)
    pid_namespace = models.CharField(max_length=64)
    pid = models.PositiveIntegerField()
    pid_started = models.BigIntegerField(help_text="start time of the pid, in clock ticks since boot")
    redis_id = models.CharField(max_length=36, blank=True, help_text="the random id kept in the Redis it uses")
    slots = models.PositiveIntegerField(default=0)
    busy = models.PositiveIntegerField(default=0)
    draining = models.BooleanField(default=False)
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(db_index=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    # The last field: in the class's body its name hides the module's. A ready one has its context, in tokens, too.
    models = models.JSONField(default=list, help_text="[{name, state, error}]; state: loading, ready, failed")

    def __str__(self) -> str:
        return f"{self.hostname} ({str(self.id)[:8]})"

    @property
    def ready_models(self) -> list[str]:
        return [str(model["name"]) for model in self.models if model["state"] == "ready"]


class Job(models.Model):
    """One prompt and its reply.

    Only `queue.py` writes `state`, `epoch`, `order_key` and the instants; every write for a running job
    carries the epoch of its claim.
    """

    class State(models.TextChoices):
        """
        queued ──▶ running ──▶ finished
          ▲  │        │ └────▶ failed
          │  │        └──────▶ cancelled   (partial text kept)
          │  ├──▶ cancelled · expired      (waited longer than the queue allows)
          └──┘ running → queued: its worker died or drains; tokens kept
        failed → queued: only by requeue()
        """

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        FINISHED = "finished", "finished"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"
        EXPIRED = "expired", "expired"

    FINAL = (State.FINISHED, State.FAILED, State.CANCELLED, State.EXPIRED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, db_index=False, related_name="jobs")
    queue = models.ForeignKey(Queue, models.PROTECT, db_index=False, related_name="jobs")
    model = models.CharField(max_length=100)
    messages = models.JSONField(help_text="[{role, content}], the prompt as the model's template gets it")
    params = models.JSONField(default=dict)
    client_id = models.UUIDField(null=True, blank=True, help_text="the browser's id of this prompt")

    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    priority = models.SmallIntegerField(choices=Priority.choices, default=Priority.NORMAL)
    arrival = models.BigIntegerField()
    order_key = models.BigIntegerField()
    epoch = models.PositiveIntegerField(default=0, help_text="raised by each claim, never reset")
    attempt = models.PositiveIntegerField(default=0, help_text="claims without progress")
    worker = models.ForeignKey(Worker, models.SET_NULL, null=True, blank=True, related_name="jobs")
    task_id = models.CharField(max_length=36, blank=True, help_text="Celery's id of the task that runs it")

    text = models.TextField(blank=True)
    origin = models.PositiveIntegerField(default=0, help_text="the epoch that wrote the stream's first entry")
    discarded_origin = models.PositiveIntegerField(
        default=0, help_text="a stream of this origin or an older one was given up by a requeue"
    )
    last_seq = models.PositiveIntegerField(default=0)
    finish_reason = models.CharField(max_length=20, blank=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    dropped_messages = models.PositiveIntegerField(
        default=0, db_default=0, help_text="the oldest, which no longer fitted into the model's context"
    )
    timings = models.JSONField(default=dict, blank=True, help_text="seconds: queue, prefill, first_token, total")
    error_code = models.CharField(max_length=32, blank=True)
    error_message = models.TextField(blank=True, help_text="for people")
    error_traceback = models.TextField(blank=True, help_text="for staff")

    created_at = models.DateTimeField(help_text="submitted")
    queued_at = models.DateTimeField(help_text="last put in line")
    first_started_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True, help_text="last claimed")
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "client_id"], name="job_client_id_once_per_user"),
        ]
        indexes = [
            # Only what waits. One range per model, in order: a claim reads one entry of it.
            models.Index(
                fields=["queue", "model", "order_key", "arrival"],
                name="job_line",
                condition=Q(state="queued"),
            ),
            # The whole line in order, for positions.
            models.Index(fields=["queue", "order_key", "arrival"], name="job_positions", condition=Q(state="queued")),
            # Not partial: SQLite can't prove `state IN (?, ?)` from a bound query and would scan the table.
            models.Index(fields=["user", "queue", "state"], name="job_user_state"),
            models.Index(fields=["worker"], name="job_running_worker", condition=Q(state="running")),
            models.Index(fields=["-created_at"], name="job_newest"),
            models.Index(fields=["user", "-created_at"], name="job_user_newest"),
            models.Index(fields=["queue", "state"], name="job_queue_state"),
            # For whoever looks for one by the id that a browser or Flower shows.
            models.Index(fields=["task_id"], name="job_task"),
            models.Index(fields=["client_id"], name="job_client_id", condition=Q(client_id__isnull=False)),
            # How long the latest replies took, for the forecast of the wait.
            models.Index(fields=["queue", "-ended_at"], name="job_queue_latest"),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.state})"

    @property
    def is_final(self) -> bool:
        return self.state in self.FINAL


class Account(models.Model):
    """Each person's row that their submits lock after the Queue's, so that limits over all queues are exact."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="+")

    def __str__(self) -> str:
        return str(self.user_id)


class Quota(models.Model):
    """How many tokens, of prompts and replies together, a person may use: one's own, a group's, or everybody's.

    One's own row counts alone; else those of one's groups, each a limit for every member and the most generous one
    counting; else the row without person and group.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="neither a person nor a group: for everybody who has no other quota",
    )
    group = models.OneToOneField(
        "auth.Group", models.CASCADE, null=True, blank=True, related_name="+", help_text="for each of its members"
    )
    tokens_per_day = models.PositiveBigIntegerField(null=True, blank=True, help_text="empty: no limit; days are UTC's")
    tokens_per_month = models.PositiveBigIntegerField(null=True, blank=True, help_text="empty: no limit")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user=None) | Q(group=None),
                name="quota_of_a_person_or_a_group",
                violation_error_message="A quota is a person's or a group's, not both.",
            ),
            models.UniqueConstraint(
                Coalesce("group", 0, output_field=models.IntegerField()),
                condition=Q(user=None, group=None),
                name="quota_of_everybody_once",
                violation_error_message="There is a quota for everybody already.",
            ),
        ]

    def __str__(self) -> str:
        if self.user is not None:
            return str(self.user)
        return f"group {self.group}" if self.group is not None else "everybody else"


class TokenUse(models.Model):
    """The ledger: tokens of one person's ended jobs on one day. Only ever added to, whatever becomes of the jobs."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, db_index=False, related_name="+")
    day = models.DateField(help_text="UTC, of the job's end")
    tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "token use"
        constraints = [models.UniqueConstraint(fields=["user", "day"], name="token_use_once_a_day")]
        indexes = [models.Index(fields=["-day", "user"], name="token_use_newest")]

    def __str__(self) -> str:
        return f"{self.user_id}, {self.day}"
