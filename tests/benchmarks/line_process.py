"""One line that is measured: does what it is told on its standard input and answers with seconds, as JSON."""

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice, repeat
from random import Random
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from generation import conf, queue  # noqa: E402
from generation.delivery import stream  # noqa: E402
from generation.models import Job  # noqa: E402
from tests.benchmarks import rows  # noqa: E402

NUM_PEOPLE = 2_000


def main(size: int, num_threads: int) -> None:
    call_command("migrate", verbosity=0)
    models = list(conf.models())
    people, worker = rows.people(NUM_PEOPLE), rows.worker(models)
    rows.jobs(people, size, models=models)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")  # what autovacuum does soon after so many new rows
    draws, numbers = Random(7), count()
    threads = ThreadPoolExecutor(num_threads)

    def submit(_: object) -> None:
        user, model = draws.choice(people), models[next(numbers) % len(models)]
        messages = [{"role": "user", "content": rows.PROMPT}]
        queue.submit(user, messages, model=model, client_id=uuid.uuid4())

    def claim(_: object) -> None:
        assert queue.claim("gpu", models, worker, str(uuid.uuid4())) is not None

    def claim_anew(_: object) -> None:
        claim(_)
        connection.close()

    acts: dict[str, Callable[[object], None]] = {"submit": submit, "claim": claim, "claim-anew": claim_anew}
    for line in sys.stdin:
        word, *arguments = line.split()
        answer: Any = None
        if word in acts:
            answer = _seconds(threads, acts[word], int(arguments[0]), num_threads)
        elif word == "settle":
            Job.objects.filter(state=Job.State.RUNNING).update(state=Job.State.FINISHED, worker=None)
            stream.sync_client().flushdb()
        print(json.dumps(answer), flush=True)


def _seconds(threads: ThreadPoolExecutor, act: Callable[[object], None], number: int, num_threads: int) -> float:
    def some(share: Iterable[object]) -> None:
        for each in share:
            act(each)

    began = time.perf_counter()
    list(threads.map(some, [islice(repeat(None), number // num_threads) for _ in range(num_threads)]))
    return time.perf_counter() - began


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
