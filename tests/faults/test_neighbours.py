"""What one person does, however much or however wrong, changes nothing for the others on the same site."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import pytest

from tests.chat.sockets import people, rows
from tests.faults.outages import locked_database
from tests.faults.replies import check_whole, failure
from tests.site import Site, resident_bytes, running

BAD_PARAMS = [
    *('{"temperature": NaN}', '{"temperature": Infinity}', '{"temperature": -1}', '{"top_p": -1}', '{"top_p": 0}'),
    *('{"top_p": 2}', '{"max_new_tokens": -1}', '{"max_new_tokens": 1e12}', '{"max_new_tokens": 1000000000000}'),
    *('{"stop": ""}', '{"stop": [""]}', '{"logit_bias": {"99999999": 1}}', '{"stop_token_ids": [99999999]}'),
]
ODD_PARAMS = ['{"temperature": 0.000001}', '{"max_new_tokens": 1}', '{"top_k": 1000000}', '{"top_p": 1e-9}']


def test_bad_parameters_change_nothing_for_somebody_who_is_being_answered(faulty_site: Site) -> None:
    """One bad parameter killed the engine for everybody (vllm-project/vllm#16529, vllm-project/vllm#44968,
    vllm-project/vllm#5822, ggml-org/llama.cpp#19367, sgl-project/sglang#28153).
    """
    ada, bob = people(faulty_site, 2)
    text = "nobody disturbs this reply"
    with ada.socket() as watched, bob.socket() as careless:
        job = watched.prompt(text, params={"max_new_tokens": 1500})["job"]
        watched.until("token", job=job)
        for params in BAD_PARAMS:
            careless.raw(f'{{"type": "prompt", "id": "{uuid4()}", "text": "x", "params": {params}}}')
            assert careless.error()["code"] == "bad_params", params
        for params in ODD_PARAMS:
            given = json.loads(params) | ({} if "max_new_tokens" in params else {"max_new_tokens": 3})
            mine = careless.prompt("odd but right", params=given)["job"]
            check_whole(faulty_site, careless, mine, "odd but right", given["max_new_tokens"])
        assert failure(faulty_site, job)[0] == "running", "it ended too soon to prove anything"
        check_whole(faulty_site, watched, job, text, 1500)


@contextmanager
def locked_for(site: Site, seconds: float) -> Iterator[threading.Event]:
    """Nobody else can write to the database for so long; the event is set when they can again."""
    released = threading.Event()
    with locked_database(site) as unlock:

        def release() -> None:
            unlock()
            released.set()

        timer = threading.Timer(seconds, release)
        timer.start()
        try:
            yield released
        finally:
            timer.join()


def test_slow_database_calls_of_some_freeze_nobody_elses_stream(faulty_site: Site) -> None:
    """One socket's slow database call stopped all others, for they shared a thread (django/channels#2132)."""
    ada, *others = people(faulty_site, 11)
    seconds, text = 3.0, "on and on it goes"
    with ada.socket() as watched, ExitStack() as stack:
        sockets = [stack.enter_context(other.socket()) for other in others]
        job = watched.prompt(text, params={"max_new_tokens": 1000})["job"]
        watched.until("token", job=job)
        with locked_for(faulty_site, seconds) as released:
            # More than the threads that a web process has for its sockets' calls: each waits for the lock.
            for socket in sockets:
                socket.send("prompt", id=str(uuid4()), text="waits", params={"max_new_tokens": 2})
            heard_at = [time.monotonic()]
            while not released.is_set():
                watched.until("token", job=job)
                heard_at.append(time.monotonic())
        gaps = [later - earlier for earlier, later in zip(heard_at, heard_at[1:], strict=False)]
        # A hundred tokens a second: what is frozen until the lock is gone shows as one gap of all that time.
        assert max(gaps) < seconds / 2
        assert len(gaps) > 10
        for socket in sockets:
            waiting = socket.until("queued")["job"]
            check_whole(faulty_site, socket, waiting, "waits", 2)
        check_whole(faulty_site, watched, job, text, 1000)


@pytest.fixture(scope="module")
def strict_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One slow reply at a time, three for each person."""
    environ = {"GENERATION_MODELS": "mock=mock:?rate=5", "GENERATION_MAX_JOBS_PER_USER": "3"}
    site = Site(tmp_path_factory.mktemp("strict"), "--no-flower", "--concurrency", "1", **environ)
    with running(site):
        yield site


@pytest.mark.parametrize("number", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_persons_prompts_without_end_take_neither_memory_nor_anybodys_place(strict_site: Site, number: int) -> None:
    """The queue grew without limit, and memory and everybody's wait with it (vllm-project/vllm#18826,
    vllm-project/vllm#2901, vllm-project/vllm#49445).
    """
    greedy, other = people(strict_site, 2)
    pids = [strict_site.up["pids"][name] for name in ("web", "worker")]
    with greedy.socket() as socket, other.socket() as patient:
        jobs = [socket.prompt("mine, all mine", params={"max_new_tokens": 2000})["job"] for _ in range(3)]
        codes = set()
        memory: list[list[int]] = []
        for first in range(0, number, 100):
            for each in range(first, first + 100):
                socket.send("prompt", id=str(uuid4()), text=f"and this {each} " + "word " * 500)
            codes.update(socket.error()["code"] for _ in range(100))
            memory.append([resident_bytes(pid) for pid in pids])
        assert codes == {"too_many_jobs"}
        # What was taken once is used again: after the first tenth it grows no more, whatever comes.
        warm = memory[len(memory) // 10]
        assert all(now < before * 1.15 for now, before in zip(memory[-1], warm, strict=True)), (warm, memory[-1])
        mine = patient.prompt("just one", params={"max_new_tokens": 2})
        assert mine["position"] <= 3
        statement = "SELECT count(*) FROM generation_job WHERE user_id = (SELECT id FROM auth_user WHERE username = ?)"
        assert rows(strict_site, statement, greedy.name) == [(3,)]
        for job in jobs:
            socket.send("cancel", job=job)
        check_whole(strict_site, patient, mine["job"], "just one", 2)
