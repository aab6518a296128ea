"""The line's public face and the only writer of `Job.state`: submit, claim, end, put back, cancel, steer.

Each change is a conditional UPDATE whose row count decides; for a running job it carries the epoch of its claim,
so that an older claim changes nothing. Whatever changes the line locks the Queue row first. Messages sent after
a commit only wake somebody: nothing is lost with one. Whatever ends a job that has run charges its tokens to its
person in the same transaction.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Greatest

from generation import admission, instants, ledger, line, notices, statements, told
from generation.admission import Refused
from generation.line import position_of, positions
from generation.models import Job, Priority, Queue, Worker
from generation.steering import drain, pause, resume, undrain

__all__ = [
    "Refused",
    "cancel",
    "claim",
    "drain",
    "end",
    "fail_waiting",
    "move_to_front",
    "pause",
    "position_of",
    "positions",
    "put_back",
    "requeue",
    "resume",
    "submit",
    "undrain",
]

State = Job.State
SIGNALS = {State.FINISHED: "job_finished", State.FAILED: "job_failed", State.CANCELLED: "job_cancelled"}
"""What Django's receivers hear of an end."""

MAX_FAILED_AT_ONCE = 100
"""The line is locked meanwhile; the next tick fails the rest."""

MAX_ATTEMPTS = 3
"""Claims without a new token until a job is taken for the cause of its workers' ends."""


def submit(
    user: Any,
    messages: Sequence[Mapping[str, str]],
    *,
    model: str | None = None,
    params: Mapping[str, object] | None = None,
    client_id: uuid.UUID | None = None,
    priority: Priority = Priority.NORMAL,
) -> Job:
    """Put a prompt in line and return its job; the same `client_id` of the same person is the same job.

    Raises Refused, with a code and a text for people, before anything is written. Inside a caller's transaction
    the wake is sent when that commits. A committed row is accepted even when the broker is down.
    """
    if client_id is not None and (known := _known(user, client_id)):
        return known
    checked = admission.check_messages(messages)
    now = instants.now()
    spec = admission.check_model(model, user)
    sampling = admission.check_params(params, spec)
    admission.check_quota(user, now)
    stored = sampling.as_json()
    if stored.get("seed") is None:
        stored["seed"] = uuid.uuid4().int & 0x7FFFFFFF  # so that a successor draws the same numbers
    try:
        with line.changing(spec.queue) as queue:
            if client_id is not None and (known := _known(user, client_id)):
                return known
            ledger.lock(user.pk)
            admission.check_limits(queue, user.pk, now, priority)
            arrival, order_key = line.place_new(queue, user.pk, priority)
            job = Job.objects.create(
                user=user,
                queue=queue,
                model=spec.name,
                messages=checked,
                params=stored,
                client_id=client_id,
                priority=priority,
                arrival=arrival,
                order_key=order_key,
                task_id=str(uuid.uuid4()),
                created_at=now,
                queued_at=now,
            )
    except IntegrityError:
        # The same prompt of the same person, sent at the same moment for another queue.
        if client_id is not None and (known := _known(user, client_id)):
            return known
        raise
    transaction.on_commit(lambda: notices.wake(job.queue_id, str(job.pk), job.task_id))
    return job


def _known(user: Any, client_id: uuid.UUID) -> Job | None:
    return Job.objects.filter(user=user, client_id=client_id).first()


def claim(
    queue_name: str, models: list[str], worker: Worker, task_id: str, *, last_attempts: bool = True
) -> Job | None:
    """The first job in line for one of these models, now running under a new epoch; None if there is none.

    Without `last_attempts` a job that this claim would be the last one for is not claimed, nor any behind it.
    """
    now = instants.now()
    with line.changing(queue_name) as queue:
        if queue.paused:
            return None
        while job := statements.head(queue_name, models):
            if not line.is_overdue(job, queue, now):
                break
            _expire(job, queue, now)
        if job is None or (job.attempt == MAX_ATTEMPTS - 1 and not last_attempts):
            return None
        claimed = {
            "state": State.RUNNING,
            "epoch": job.epoch + 1,
            "attempt": job.attempt + 1,
            "worker": worker.pk,
            "task_id": task_id,
            "started_at": now,
            "first_started_at": job.first_started_at or now,
        }
        if not statements.take(job, worker, claimed):
            return None
        line.advance(queue, line.start_of(job))
        for name, value in (claimed | {"worker": worker}).items():
            setattr(job, name, value)
        transaction.on_commit(lambda: notices.changed(job, signal="job_started"))
    return job


def note_progress(job: Job, tokens: int) -> bool:
    """Tell how many tokens the claimed job has from before; more than at its last claim is progress.

    Fewer means that they were lost with Redis: progress is then counted from there.
    False if the job was claimed too often without any and must not be run again.
    """
    if tokens != job.completion_tokens:
        job.attempt = 1 if tokens > job.completion_tokens else job.attempt
        job.completion_tokens = tokens
        Job.objects.filter(pk=job.pk, state=State.RUNNING, epoch=job.epoch).update(
            attempt=job.attempt, completion_tokens=tokens
        )
    return job.attempt <= MAX_ATTEMPTS


def end(job_id: uuid.UUID, epoch: int, state: Job.State, **fields: Any) -> bool:
    """Write a running job's final state with its text and counts; False if another claim has it or it ended."""
    now = instants.now()
    with transaction.atomic():
        changed = Job.objects.filter(pk=job_id, state=State.RUNNING, epoch=epoch).update(
            state=state, ended_at=now, **fields
        )
        if changed:
            ledger.charge(job_id, now)
            transaction.on_commit(lambda: notices.changed_id(job_id, signal=SIGNALS[state]))
    return bool(changed)


def put_back(job_id: uuid.UUID, epoch: int, *, drained: bool, **fields: Any) -> bool:
    """Return a running job to the line with its old key, so before all that waited behind it.

    A job whose cancellation was asked for is cancelled instead. A drain is no failed attempt. Never refused by a
    cap. False if another claim has the job or it ended.
    """
    queue_name = Job.objects.filter(pk=job_id).values_list("queue_id", flat=True).first()
    if queue_name is None:
        return False
    with line.changing(queue_name):
        mine = Job.objects.filter(pk=job_id, state=State.RUNNING, epoch=epoch)
        if drained:
            fields["attempt"] = F("attempt") - 1
        now = instants.now()
        changed = mine.filter(cancel_requested_at=None).update(state=State.QUEUED, worker=None, queued_at=now, **fields)
        if changed:
            transaction.on_commit(lambda: notices.changed_id(job_id))
            transaction.on_commit(lambda: notices.wake(queue_name, str(job_id)))
        elif mine.update(state=State.CANCELLED, ended_at=now, **fields):
            changed = 1
            _charge_what_was_written(job_id, now)
            transaction.on_commit(lambda: notices.changed_id(job_id, signal="job_cancelled"))
            transaction.on_commit(lambda: notices.shorten_stream(job_id))
    return bool(changed)


def cancel(job: Job) -> bool:
    """Cancel a job. True if it is final now; a running one is asked to stop, and its worker writes the end."""
    now = instants.now()
    with line.changing(job.queue_id):
        if _end_waiting(job, State.CANCELLED, now, cancel_requested_at=now):
            return True
        asked = Job.objects.filter(pk=job.pk, state=State.RUNNING, cancel_requested_at=None).update(
            cancel_requested_at=now
        )
        job.refresh_from_db()
        if asked and job.worker_id is not None:
            worker_id = job.worker_id
            transaction.on_commit(lambda: notices.control(worker_id, job.pk))
    return job.is_final


def requeue(job: Job) -> bool:
    """Put a failed job back in line as if it were new; False if it is not failed."""
    now = instants.now()
    with line.changing(job.queue_id) as queue:
        # Only then a place: joining the line moves its virtual time.
        if not Job.objects.filter(pk=job.pk, state=State.FAILED).exists():
            return False
        arrival, order_key = line.place_new(queue, job.user_id, Priority(job.priority))
        changed = Job.objects.filter(pk=job.pk, state=State.FAILED).update(
            state=State.QUEUED,
            arrival=arrival,
            order_key=order_key,
            attempt=0,
            worker=None,
            text="",
            origin=0,
            discarded_origin=F("epoch"),
            last_seq=0,
            prompt_tokens=0,
            completion_tokens=0,
            cached_tokens=0,
            dropped_messages=0,
            timings={},
            error_code="",
            error_message="",
            error_traceback="",
            queued_at=now,
            first_started_at=None,
            started_at=None,
            ended_at=None,
            cancel_requested_at=None,
        )
        if changed:
            job.refresh_from_db()
            transaction.on_commit(lambda: notices.forget_stream(job.pk))
            transaction.on_commit(lambda: notices.changed(job))
            transaction.on_commit(lambda: notices.wake(job.queue_id, str(job.pk)))
    return bool(changed)


def move_to_front(job: Job) -> bool:
    """Before all that wait and all that may come, whatever their priority; False if it doesn't wait."""
    with line.changing(job.queue_id) as queue:
        moved = Job.objects.filter(pk=job.pk, state=State.QUEUED).update(order_key=line.front_key(queue))
    return bool(moved)


def expire(queue_name: str) -> int:
    """End every job that has waited longer than its queue allows without ever starting; how many."""
    now = instants.now()
    queue = Queue.objects.filter(pk=queue_name).first()
    if queue is None or not line.overdue(queue, now).exists():
        return 0
    with line.changing(queue_name) as queue:
        return sum(_expire(job, queue, now) for job in line.overdue(queue, now))


def fail_waiting(
    queue_name: str, model: str, queued_before: datetime, code: str, message_for: Callable[[Any], str], details: str
) -> int:
    """Fail jobs that wait for a model which can't be had; how many. `message_for` is given each one's user.

    Those of a paused queue are kept: an operator pauses it to mend something.
    """
    now = instants.now()
    with line.changing(queue_name) as queue:
        if queue.paused:
            return 0
        stuck = line.waiting(queue_name).filter(model=model, queued_at__lte=queued_before).select_related("user")
        return sum(
            _end_waiting(
                job,
                State.FAILED,
                now,
                error_code=code,
                error_message=message_for(job.user),
                error_traceback=details,
            )
            for job in sorted(stuck[:MAX_FAILED_AT_ONCE], key=attrgetter("user_id"))  # for the ledger
        )


def _expire(job: Job, queue: Queue, now: datetime) -> bool:
    message = told.EXPIRED % {"seconds": f"{line.max_wait_seconds(queue):g}"}
    return _end_waiting(job, State.EXPIRED, now, error_message=message)


def _end_waiting(job: Job, state: Job.State, now: datetime, **fields: Any) -> bool:
    """End a job that waits, and hand its turn on; False if it doesn't wait. Needs the queue's lock."""
    if not Job.objects.filter(pk=job.pk, state=State.QUEUED).update(state=state, ended_at=now, **fields):
        return False
    job.refresh_from_db()
    line.give_back(job)
    if job.epoch:
        _charge_what_was_written(job.pk, now)
        transaction.on_commit(lambda: notices.shorten_stream(job.pk))
    transaction.on_commit(lambda: notices.changed(job, signal=SIGNALS.get(state, "")))
    return True


def _charge_what_was_written(job_id: uuid.UUID, now: datetime) -> None:
    """Charge a job that no claim ended: one entry is one token, and what was put back last is the newest count."""
    written = Greatest(F("completion_tokens"), F("last_seq") - 1)
    Job.objects.filter(pk=job_id).update(completion_tokens=written)
    ledger.charge(job_id, now)
