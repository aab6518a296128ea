"""One claimed job from its stream and its engine to its final row. It runs in a task's thread.

Order at the end: the row first (text, counts, state), then the end marker in the stream. A claim that finds a
marker finalises from it.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import redis
from django.db import InterfaceError, InternalError, OperationalError, close_old_connections

from generation import conf, queue, told
from generation.delivery.rows import DROPPED, USAGE, usage_of
from generation.delivery.writer import Output, TokenWriter
from generation.engine import (
    Engine,
    Event,
    FinishReason,
    PromptError,
    PromptTooLong,
    SamplingParams,
    Sequence,
)
from generation.engine.history import fit
from generation.engine.params import ParamsError
from generation.models import Job

logger = logging.getLogger(__name__)

T = TypeVar("T")
RETRY_SECONDS = 0.5


class StopCause(StrEnum):
    """Why a worker took a sequence off its engine."""

    CANCEL = "cancel"
    DRAIN = "drain"
    DEADLINE = "deadline"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Claim:
    """A job that this process runs. `stop` may be called from any thread; the first cause counts."""

    job: Job
    output: Output | None = None
    sequence: Sequence | None = None
    started: float = field(default_factory=time.monotonic)
    cause: StopCause | None = None
    num_known: int = 0
    """Entries that the reply had when it was claimed."""
    num_dropped: int = 0
    """Messages that no longer fit into the model's context."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def waited_seconds(self) -> float:
        """From submit, or from its last return to the line, to this claim."""
        started = self.job.started_at
        return max(0.0, round((started - self.job.queued_at).total_seconds(), 3)) if started else 0.0

    @property
    def has_progress(self) -> bool:
        """Whether Redis holds more of the reply than before this claim."""
        return self.output is not None and self.output.written > self.num_known

    def stop(self, cause: StopCause) -> None:
        with self._lock:
            # A lost claim may write nothing, whatever was asked for before.
            if self.cause is None or cause is StopCause.LOST:
                self.cause = cause
            sequence = self.sequence
        if sequence is not None:
            sequence.cancel()

    def begin(self, sequence: Sequence) -> None:
        with self._lock:
            self.sequence = sequence
            stopped = self.cause is not None
        if stopped:
            sequence.cancel()


def run(claim: Claim, engine: Engine, writer: TokenWriter) -> None:
    """Take the job to its next state. An error of ours fails the job, is logged and raised."""
    try:
        output = _open(claim, writer)
        if output is None:
            return
        claim.num_known = len(output.entries)
        claim.output = output
        try:
            _generate(claim, output, engine, writer)
        finally:
            writer.release(output)
    except Exception as error:
        _fail(claim, writer, "engine_error", told.OUR_ERROR, error)
        raise


def _open(claim: Claim, writer: TokenWriter) -> Output | None:
    """The job's output under this claim. While Redis is away it waits; a drain gives the job back meanwhile."""
    job = claim.job
    while True:
        try:
            return writer.open(job.pk, job.epoch, job.discarded_origin)
        except redis.RedisError as error:
            logger.warning("job %s waits for Redis: %s", job.pk, error)
        if claim.cause is StopCause.LOST:
            return None
        if claim.cause is not None:
            with_database(lambda: queue.put_back(job.pk, job.epoch, drained=True))
            return None
        time.sleep(RETRY_SECONDS)


def _generate(claim: Claim, output: Output, engine: Engine, writer: TokenWriter) -> None:
    job = claim.job
    if output.marker is not None:
        _end_from_marker(job, output)
        return
    if not with_database(lambda: queue.note_progress(job, len(output.entries))):
        _fail(claim, writer, "worker_lost", told.WORKER_LOST)
        return
    if claim.cause is None:
        try:
            params = _params(job)
            prompt = fit(engine.encode, job.messages, engine.context, params.max_new_tokens)
            claim.num_dropped = prompt.num_dropped
            sequence = engine.submit(prompt.ids, params, identifier=(job.pk, job.epoch), generated_ids=output.ids)
        except PromptTooLong as error:
            _fail(claim, writer, "prompt_too_long", str(error))
            return
        except (PromptError, ParamsError) as error:
            _fail(claim, writer, "bad_params", str(error))
            return
        claim.begin(sequence)
        event = sequence.wait()
        assert event is not None, "a sequence that ended without a time limit has its end"
        _end(claim, output, writer, event)
    else:
        _stopped(claim, output, writer, {})


def _params(job: Job) -> SamplingParams:
    """As they were accepted. A ceiling that is lower here bounds the reply and refuses nothing."""
    ceiling = conf.max_new_tokens()
    bounded = {
        name: min(job.params[name], ceiling) for name in ("max_new_tokens", "min_new_tokens") if name in job.params
    }
    return SamplingParams.parse(job.params | bounded, max_new_tokens=ceiling)


def _end(claim: Claim, output: Output, writer: TokenWriter, event: Event) -> None:
    counts = _counts(event)
    counts["timings"]["queue"] = claim.waited_seconds
    counts["dropped_messages"] = claim.num_dropped
    if claim.num_known:
        # The seconds are this claim's alone, the count is the whole reply's.
        counts["timings"]["tokens"] = max(0, counts["completion_tokens"] - claim.num_known)
    if event.reason is FinishReason.CANCELLED:
        _stopped(claim, output, writer, counts)
    elif event.reason is FinishReason.ERROR:
        _fail(claim, writer, "engine_error", told.MODEL_ERROR, event.error, counts)
    else:
        assert event.reason is not None
        reason = str(event.reason)
        marker = {
            "type": "finished",
            "seq": len(output.entries) + 1,
            "reason": reason,
            "usage": usage_of(counts),
            "timings": counts["timings"],
        }
        _finalise(claim, output, writer, Job.State.FINISHED, marker, finish_reason=reason, **counts)


def _stopped(claim: Claim, output: Output, writer: TokenWriter, counts: dict[str, Any]) -> None:
    job = claim.job
    match claim.cause:
        case StopCause.LOST:
            logger.warning("job %s went on elsewhere; epoch %d writes nothing more", job.pk, job.epoch)
        case StopCause.DRAIN:
            fields: dict[str, Any] = {"text": output.text, "last_seq": len(output.entries) + 1}
            if "prompt_tokens" in counts:
                # For the ledger, should nobody run it again; the reply's tokens follow from `last_seq`.
                fields["prompt_tokens"] = counts["prompt_tokens"]
            with_database(lambda: queue.put_back(job.pk, job.epoch, drained=True, **fields))
        case StopCause.DEADLINE:
            message = told.DEADLINE % {"seconds": f"{conf.job_timeout_seconds():g}"}
            _fail(claim, writer, "deadline", message, None, counts)
        case _:
            marker = {"type": "cancelled", "seq": len(output.entries) + 1}
            _finalise(claim, output, writer, Job.State.CANCELLED, marker, **counts)


def _fail(
    claim: Claim,
    writer: TokenWriter,
    code: str,
    message: str,
    error: BaseException | None = None,
    counts: dict[str, Any] | None = None,
) -> None:
    output = claim.output
    logger.error("job %s failed: %s", claim.job.pk, message, exc_info=error)
    details = "".join(traceback.format_exception(error)) if error else ""
    fields = {"error_code": code, "error_message": message, "error_traceback": details, **(counts or {})}
    if output is None:
        with_database(lambda: queue.end(claim.job.pk, claim.job.epoch, Job.State.FAILED, **fields))
        return
    marker = {"type": "failed", "seq": len(output.entries) + 1, "code": code, "message": message}
    _finalise(claim, output, writer, Job.State.FAILED, marker, **fields)


def _finalise(
    claim: Claim, output: Output, writer: TokenWriter, state: Job.State, marker: dict[str, Any], **fields: Any
) -> None:
    job = claim.job
    fields |= {"text": output.text, "origin": output.origin, "last_seq": len(output.entries) + 1}
    if with_database(lambda: queue.end(job.pk, job.epoch, state, **fields)):
        writer.end(output, marker)


def _end_from_marker(job: Job, output: Output) -> None:
    """The claim before this one wrote the marker but its row's state was lost with a database's last second."""
    marker = output.entries[-1].end or {}
    usage = marker.get("usage", {})
    state = Job.State(marker["type"])
    fields: dict[str, Any] = {
        "text": output.text,
        "origin": output.origin,
        "last_seq": len(output.entries),
        "finish_reason": marker.get("reason", ""),
        "timings": marker.get("timings", {}),
        "error_code": marker.get("code", ""),
        "error_message": marker.get("message", ""),
        "completion_tokens": len(output.ids),
        # A newer version may count more than this one has columns for.
        **{name: usage[name] for name in (*USAGE, DROPPED) if name in usage},
    }
    with_database(lambda: queue.end(job.pk, job.epoch, state, **fields))


def _counts(event: Event) -> dict[str, Any]:
    usage, timings = event.usage, event.timings
    counts: dict[str, Any] = {"timings": {}}
    if usage is not None:
        counts |= {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        }
    if timings is not None:
        counts["timings"] = {
            "queue": _rounded(timings.queue),
            "prefill": _rounded(timings.prefill),
            "first_token": _rounded(timings.first_token),
            "total": _rounded(timings.total),
        }
    return counts


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def with_database(change: Callable[[], T], patience_seconds: float = 300.0) -> T:
    """Run a change, again while the database is away; each is conditional on an epoch, so twice is once."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return change()
        except (OperationalError, InterfaceError, InternalError) as error:
            # The last one: PostgreSQL ended a transaction that stood still, with this process or its host.
            if time.monotonic() > deadline:
                raise
            logger.warning("the database doesn't answer, trying again: %s", error)
            close_old_connections()
            time.sleep(RETRY_SECONDS)
