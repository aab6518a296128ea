"""A worker's side of delivery without a worker: numbered entries for jobs whose rows are written directly."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from django.conf import settings
from django.db import connection

from generation.delivery import stream
from generation.delivery.writer import Output, TokenWriter
from generation.models import Job

PATIENCE_SECONDS = 20.0


def epoch_of(job_id: UUID) -> int | None:
    try:
        return Job.objects.filter(pk=job_id).values_list("epoch", flat=True).first()
    finally:
        connection.close()


class Worker:
    """A worker's side of delivery, and what it was told of lost claims."""

    def __init__(self) -> None:
        self.lost: list[tuple[UUID, int]] = []
        self.heard = threading.Event()
        self.writer = TokenWriter(settings.REDIS_URL, epoch_of, self._on_lost)
        self.writer.start()

    def _on_lost(self, job_id: UUID, epoch: int) -> None:
        self.lost.append((job_id, epoch))
        self.heard.set()

    def open(self, job: Job) -> Output:
        output = self.writer.open(job.pk, job.epoch, job.discarded_origin)
        assert output is not None
        return output

    def write(self, output: Output, first: int, last: int) -> None:
        """One step per entry: the token id is the number, the text that number and a blank."""
        for number in range(first, last + 1):
            self.writer.put(output.job_id, output.epoch, (number,), f"{number} ")
            self.writer.wake()

    def finish(self, output: Output) -> None:
        """The row first, then the marker, as a task does it."""
        last_seq = len(output.entries) + 1
        fields = {"text": output.text, "origin": output.origin, "last_seq": last_seq, "finish_reason": "length"}
        Job.objects.filter(pk=output.job_id, epoch=output.epoch).update(state=Job.State.FINISHED, **fields)
        self.writer.end(output, {"type": "finished", "seq": last_seq, "reason": "length", "usage": {}, "timings": {}})
        self.writer.release(output)
        assert output.flushed.wait(PATIENCE_SECONDS)


@contextmanager
def started_workers() -> Iterator[Callable[[], Worker]]:
    """Gives a function that starts one; all are closed at the end."""
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker())
        return workers[-1]

    try:
        yield start
    finally:
        for worker in workers:
            worker.writer.close()


def claimed_again(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(epoch=job.epoch + 1, attempt=job.attempt + 1)
    return Job.objects.get(pk=job.pk)


def numbers(first: int, last: int) -> str:
    return "".join(f"{number} " for number in range(first, last + 1))


def wait_for_entry(job: Job, seq: int) -> None:
    found = stream.sync_client().xread({stream.tokens_key(job.pk): f"{seq - 1}-0"}, count=1, block=4000)
    assert found, f"entry {seq} was not written"


def stored(job: Job) -> list[tuple[int, tuple[int, ...], str]]:
    entries = stream.read_entries(stream.sync_client(), job.pk)
    return [(entry.seq, entry.ids, entry.text) for entry in entries if not entry.end]


def expected(last: int) -> list[tuple[int, tuple[int, ...], str]]:
    return [(number, (number,), f"{number} ") for number in range(1, last + 1)]
