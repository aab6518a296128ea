"""What a reply of the model `mock` must be, as a socket received it and as its row stores it."""

from uuid import UUID

from tests.chat.sockets import ENDS, Frame, Socket, rows
from tests.site import Site


def repeated(text: str, words: int) -> str:
    said = text.split()
    return " ".join(said[number % len(said)] for number in range(words))


def failure(site: Site, job: str) -> tuple[str, str, str, str]:
    """(state, error_code, error_traceback, text) of a job's row."""
    return rows(
        site,
        "SELECT state, error_code, error_traceback, text FROM generation_job WHERE id = ?",
        UUID(job).hex,
    )[0]  # type: ignore[return-value]


def end_of(socket: Socket, job: str) -> Frame:
    """The job's end, which may have come already."""
    return next(iter(socket.of(job, *ENDS)), None) or socket.end(job)


def check_whole(site: Site, socket: Socket, job: str, text: str, words: int) -> Frame:
    """Read on to the end; it is finished with exactly these words, however many claims it took."""
    end = end_of(socket, job)
    assert end["type"] == "finished", end
    assert socket.text(job) == repeated(text, words)
    seq = 0
    for frame in socket.of(job, "token", "snapshot"):
        assert frame["type"] == "snapshot" or frame["seq"] == seq + 1, f"{frame['seq']} came after {seq}"
        seq = frame["seq"]
    assert (seq, end["seq"]) == (words, words + 1)
    state, stored = rows(site, "SELECT state, text FROM generation_job WHERE id = ?", UUID(job).hex)[0]
    assert (state, stored) == ("finished", socket.text(job))
    return end
