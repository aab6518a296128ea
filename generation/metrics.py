"""`/metrics` in Prometheus' text format: what waits, what runs, and the workers' slots, by queue.

Gauges from indexed counts only, so that scraping costs the same whatever the table holds.
"""

from collections.abc import Callable

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from generation import overview
from generation.models import Job
from generation.overview import QueueLoad

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES: list[tuple[str, str, Callable[[QueueLoad], float]]] = [
    ("generation_workers", "Workers whose lease holds.", lambda queue: queue.num_workers),
    ("generation_slots", "Jobs that the live workers can run at once.", lambda queue: queue.max_running),
    ("generation_slots_busy", "Slots that the live workers report as taken.", lambda queue: queue.busy),
    ("generation_queue_limit", "Jobs that may wait.", lambda queue: queue.max_waiting),
    ("generation_queue_paused", "1 while nothing new is started.", lambda queue: int(queue.paused)),
]


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    try:
        loads = overview.queue_loads(list(overview.live_workers()))
    except (DatabaseError, InterfaceError):
        return HttpResponse("# the database can't be reached\n", content_type=CONTENT_TYPE, status=503)
    return HttpResponse(render(loads), content_type=CONTENT_TYPE)


def render(loads: list[QueueLoad]) -> str:
    lines = ["# HELP generation_jobs Jobs that wait or run.", "# TYPE generation_jobs gauge"]
    for queue in loads:
        for state, number in ((Job.State.QUEUED, queue.waiting), (Job.State.RUNNING, queue.running)):
            lines.append(f'generation_jobs{{queue="{_escape(queue.name)}",state="{state.value}"}} {number}')
    for name, meaning, value in _GAUGES:
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        lines += [f'{name}{{queue="{_escape(queue.name)}"}} {value(queue)}' for queue in loads]
    return "\n".join(lines) + "\n"


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
