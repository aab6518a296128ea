"""What an operator turns on and off: a queue, a worker. Jobs' own rows are `queue.py`'s, which exports these too.

Each takes the lock that claims take, so that no claim which began before is committed after it returned.
"""

from django.db import transaction

from generation import line, notices
from generation.models import Queue, Worker


def pause(queue_name: str) -> bool:
    """No job of this queue starts until `resume`; running ones go on. False if it was paused already."""
    with line.changing(queue_name) as queue:
        return bool(Queue.objects.filter(pk=queue.pk, paused=False).update(paused=True))


def resume(queue_name: str) -> bool:
    """Let jobs of this queue start again; False if it wasn't paused."""
    with line.changing(queue_name) as queue:
        changed = Queue.objects.filter(pk=queue.pk, paused=True).update(paused=False)
        transaction.on_commit(lambda: notices.wake(queue_name))
    return bool(changed)


def drain(worker: Worker) -> bool:
    """The worker claims no more; what it runs goes on. False if it has stopped or drains already."""
    with line.changing(worker.queue):
        return bool(Worker.objects.filter(pk=worker.pk, stopped_at=None, draining=False).update(draining=True))


def undrain(worker: Worker) -> bool:
    """The worker claims again; False if it has stopped or doesn't drain."""
    with line.changing(worker.queue) as queue:
        changed = Worker.objects.filter(pk=worker.pk, stopped_at=None, draining=True).update(draining=False)
        if changed:
            transaction.on_commit(lambda: notices.wake(queue.name))
    return bool(changed)
