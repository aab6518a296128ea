"""The Celery task: claim whatever is first in line, run it, tell which job it was."""

from typing import Any

from celery import Task, shared_task

from generation import notices, worker_signals


@shared_task(  # type: ignore[untyped-decorator]
    bind=True,
    name="generation.generate",
    ignore_result=True,
    acks_late=False,
    max_retries=0,
    soft_time_limit=None,
    time_limit=None,
)
def generate(self: Task, sent_for: str = "", **unknown: Any) -> str | None:
    """`sent_for` is the job whose submit sent this message; the returned id is the job that was run.

    A newer version may say more: the message wakes this worker all the same.
    """
    process = worker_signals.current()
    job = process.claim(self.request.id)
    if job is None:
        process.pass_on(int((self.request.headers or {}).get(notices.PASSED, 0)))
        return None
    if not sent_for:
        process.wake_others()  # sent for the line as a whole: there may be work for every free slot
    try:
        process.run(job)
    finally:
        process.wake_others()
    return str(job.pk)
