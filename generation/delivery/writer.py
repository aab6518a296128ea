"""The worker's side of delivery: one thread that writes all running replies to Redis, one script call a step.

Engine threads only append to lists; they never wait for Redis, a reader or the database. While Redis is away the
entries stay in memory, bounded by each reply's `max_new_tokens`, and are written when it is back. The writer
knows nothing of models, tasks or states: a job's row is written elsewhere, and its end marker is given to it.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import redis

from generation import keepalive
from generation.delivery import stream
from generation.delivery.stream import Entry

logger = logging.getLogger(__name__)

MAX_ENTRIES_PER_CALL = 2000
RETRY_SECONDS = 0.2
FENCED, UNDECLARED = -1, -2


@dataclass(slots=True, eq=False)
class Output:
    """One claim's reply: all its entries, and how many of them Redis has confirmed."""

    job_id: UUID
    epoch: int
    origin: int
    entries: list[Entry]
    written: int = 0
    lost: bool = False
    """A newer epoch owns the job: nothing of this claim may be written any more."""
    closed: bool = False
    flushed: threading.Event = field(default_factory=threading.Event)

    @property
    def text(self) -> str:
        return "".join(entry.text for entry in self.entries)

    @property
    def ids(self) -> list[int]:
        return [token for entry in self.entries for token in entry.ids]

    @property
    def marker(self) -> Entry | None:
        return self.entries[-1] if self.entries and self.entries[-1].end else None

    def add(self, ids: tuple[int, ...], text: str, end: dict[str, Any] | None = None) -> None:
        # NUL is text to a model, but no database column holds it.
        self.entries.append(Entry(len(self.entries) + 1, ids, text.replace("\0", "\ufffd"), end))


class TokenWriter:
    """Owns the writing thread and its own Redis client.

    `current_epoch(job_id)` reads the row; the writer asks it before it repairs a stream that lost something.
    `on_lost(job_id, epoch)` is called once, from the writing thread, when a newer epoch owns a job.
    """

    def __init__(
        self,
        url: str,
        current_epoch: Callable[[UUID], int | None],
        on_lost: Callable[[UUID, int], None],
    ) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2, **keepalive.options(url))
        self._append = self._redis.register_script(stream.APPEND)
        self._declare = self._redis.register_script(stream.DECLARE)
        self._current_epoch = current_epoch
        self._on_lost = on_lost
        self._outputs: dict[tuple[UUID, int], Output] = {}
        self._hints: dict[UUID, dict[str, Any]] = {}
        self._condition = threading.Condition()
        self._dirty = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="token-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def open(self, job_id: UUID, epoch: int, discarded_origin: int = 0) -> Output | None:
        """Declare the epoch and take over what the job's stream holds; None if a newer epoch owns it.

        A stream of `discarded_origin` or older is dropped. Raises redis.RedisError while Redis is away.
        """
        origin, entries = self._declared(job_id, epoch, 0)
        if 0 < origin <= discarded_origin:
            origin, entries = self._declared(job_id, epoch, epoch)
        if origin < 0:
            return None
        output = Output(job_id, epoch, origin, entries, written=len(entries))
        with self._condition:
            self._outputs[job_id, epoch] = output
        return output

    def put(self, job_id: UUID, epoch: int, ids: tuple[int, ...], text: str) -> None:
        """Append one step's entry of one job; call `wake` after the step's last."""
        output = self._outputs.get((job_id, epoch))
        if output is not None and not output.lost and not output.marker:
            output.add(ids, text)

    def hint(self, job_id: UUID, message: dict[str, Any]) -> None:
        """Publish a message to the job's group; an older one of this job that is still unsent is replaced."""
        with self._condition:
            self._hints[job_id] = message

    def wake(self) -> None:
        with self._condition:
            self._dirty = True
            self._condition.notify_all()

    def end(self, output: Output, marker: dict[str, Any]) -> None:
        """Append the end marker. Its row has been written; nothing can follow."""
        if output.marker is None:
            output.add((), "", marker)
        self.wake()

    def release(self, output: Output) -> None:
        """Forget the output once everything in it is written (at once if the claim was lost)."""
        output.closed = True
        self.wake()

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left, as far as Redis lets us within `timeout` seconds, and end the thread."""
        self._closing = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._redis.close()

    def _declared(self, job_id: UUID, epoch: int, origin: int) -> tuple[int, list[Entry]]:
        keys = [stream.tokens_key(job_id), stream.owner_key(job_id)]
        answer = self._declare(keys=keys, args=[epoch, origin, stream.RUNNING_TTL_SECONDS])
        if answer[0] == FENCED:
            return FENCED, []
        return answer[0], [
            stream.parse_entry(entry_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            for entry_id, fields in answer[1]
        ]

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._dirty or self._closing)
                self._dirty = False
            try:
                more = self._write()
            except redis.RedisError as error:
                logger.warning("tokens wait in memory, Redis doesn't answer: %s", error)
                more = True
                time.sleep(RETRY_SECONDS)
            except Exception:
                logger.exception("the token writer failed on one round and goes on")
                more = True
                time.sleep(RETRY_SECONDS)
            if more:
                self.wake()
            elif self._closing:
                return

    def _write(self) -> bool:
        """One script call for everything that is unwritten; whether some of it is left."""
        with self._condition:
            outputs = list(self._outputs.values())
            hints, self._hints = self._hints, {}
        if hints:
            self._publish(hints)
        keys: list[str] = []
        args: list[Any] = [stream.RUNNING_TTL_SECONDS, stream.ENDED_TTL_SECONDS]
        sent: list[tuple[Output, int]] = []
        budget = MAX_ENTRIES_PER_CALL
        for output in outputs:
            upto = min(len(output.entries), output.written + budget)
            if output.lost or upto == output.written:
                continue
            budget -= upto - output.written
            keys += [stream.tokens_key(output.job_id), stream.owner_key(output.job_id)]
            args += [output.epoch, stream.group_channel(output.job_id), upto - output.written]
            for entry in output.entries[output.written : upto]:
                args += [entry.seq, *entry.fields, stream.wire(self._message(output, entry))]
            sent.append((output, upto))
            if budget <= 0:
                break
        if sent:
            answers = self._append(keys=keys, args=args)
            for (output, upto), answer in zip(sent, answers, strict=True):
                self._take_answer(output, upto, answer)
        return self._settle()

    def _message(self, output: Output, entry: Entry) -> dict[str, Any]:
        message: dict[str, Any] = {
            "type": "job.token",
            "job": str(output.job_id),
            "seq": entry.seq,
            "text": entry.text,
            "origin": output.origin,
            "epoch": output.epoch,
        }
        if entry.end:
            message["end"] = entry.end
        return message

    def _take_answer(self, output: Output, upto: int, answer: int) -> None:
        if answer == FENCED:
            self._lose(output)
        elif answer == upto:
            output.written = upto
        else:
            self._repair(output)

    def _repair(self, output: Output) -> None:
        """Redis has less than was written (it restarted, or was emptied): write again what is missing.

        The row decides whether this claim is still the newest, for an emptied Redis remembers no epoch.
        """
        if self._current_epoch(output.job_id) != output.epoch:
            self._lose(output)
            return
        origin, entries = self._declared(output.job_id, output.epoch, output.origin)
        if origin == FENCED:
            self._lose(output)
            return
        logger.warning(
            "job %s: Redis has %d of %d entries; writing the rest again",
            output.job_id,
            len(entries),
            len(output.entries),
        )
        output.written = min(len(entries), len(output.entries))

    def _lose(self, output: Output) -> None:
        output.lost = True
        refused = len(output.entries) - output.written
        logger.warning(
            "job %s goes on elsewhere: %d entries of epoch %d were refused", output.job_id, refused, output.epoch
        )
        self._on_lost(output.job_id, output.epoch)

    def _settle(self) -> bool:
        """Drop what is done; whether something is left to write."""
        left = False
        with self._condition:
            for key, output in list(self._outputs.items()):
                done = output.lost or output.written >= len(output.entries)
                if done and output.closed:
                    del self._outputs[key]
                    output.flushed.set()
                left = left or not done
        return left

    def _publish(self, hints: dict[UUID, dict[str, Any]]) -> None:
        with self._redis.pipeline(transaction=False) as pipe:
            for job_id, message in hints.items():
                pipe.publish(stream.group_channel(job_id), stream.wire(message))
            pipe.execute()
