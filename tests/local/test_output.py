"""What processes print comes through whole."""

import io
import os

from chatsite.local.output import MAX_PENDING_BYTES, Output


def printed(written: bytes) -> str:
    stream = io.StringIO()
    reading, writing = os.pipe()
    thread = Output(stream).follow("web", os.fdopen(reading, "rb", 0))
    with os.fdopen(writing, "wb") as file:
        file.write(written)
    thread.join()
    return stream.getvalue()


def test_it_puts_the_name_before_each_line() -> None:
    assert printed(b"one\ntwo\n") == "web    │ one\nweb    │ two\n"


def test_it_prints_a_last_line_without_an_end() -> None:
    assert printed(b"one\ntwo") == "web    │ one\nweb    │ two\n"


def test_it_loses_nothing_of_a_very_long_line() -> None:
    line = b"x" * (5 * MAX_PENDING_BYTES + 17)
    assert printed(line + b"\n").count("x") == len(line)


def test_it_shows_each_state_of_a_progress_bar() -> None:
    assert printed(b"10 %\r50 %\r100 %\n") == "web    │ 10 %\nweb    │ 50 %\nweb    │ 100 %\n"


def test_it_prints_bytes_that_are_no_text() -> None:
    assert printed(b"\xff\xfe\n") == "web    │ \ufffd\ufffd\n"
