"""What a reply of the model `mock` must be, as a socket received it and as its row stores it."""

from uuid import UUID

from tests.chat.sockets import ENDS, Frame, Socket, rows
from tests.mock_words import repeated
from tests.site import Site


def failure(site: Site, job: str) -> tuple[str, str, str, str]:
    """(state, error_code, error_traceback, text) of a job's row."""
    return rows(
        site,
        "SELECT state, error_code, error_traceback, text FROM generation_job WHERE id = ?",
        UUID(job).hex,
    )[0]  # type: ignore[return-value]


def worker_of(site: Site, job: str) -> str:
    """The node's name of the worker that ran the job last."""
    statement = "SELECT hostname FROM generation_worker WHERE id = (SELECT worker_id FROM generation_job WHERE id = ?)"
    return str(rows(site, statement, UUID(job).hex)[0][0])


def end_of(socket: Socket, job: str) -> Frame:
    """The job's end, which may have come already."""
    return next(iter(socket.of(job, *ENDS)), None) or socket.end(job)


def check_whole(site: Site, socket: Socket, job: str, text: str, words: int) -> Frame:
    """Read on to the end; it is finished with exactly these words, however many claims it took."""
    end = end_of(socket, job)
    assert end["type"] == "finished", end
    assert _exact_words(site, socket, job, text) == words
    return end


def check_stopped(site: Site, socket: Socket, job: str, text: str) -> int:
    """Read on to the end; it was stopped after exactly the first words of the reply, and how many."""
    end = end_of(socket, job)
    assert end["type"] == "cancelled", end
    return _exact_words(site, socket, job, text)


def _exact_words(site: Site, socket: Socket, job: str, text: str) -> int:
    """As received, each once and in order, and as stored under the same end."""
    end = end_of(socket, job)
    seq = 0
    for frame in socket.of(job, "token", "snapshot"):
        assert frame["type"] == "snapshot" or frame["seq"] == seq + 1, f"{frame['seq']} came after {seq}"
        seq = frame["seq"]
    assert end["seq"] == seq + 1
    assert socket.text(job) == repeated(text, seq)
    state, stored = rows(site, "SELECT state, text FROM generation_job WHERE id = ?", UUID(job).hex)[0]
    assert (state, stored) == (end["type"], socket.text(job))
    return seq
