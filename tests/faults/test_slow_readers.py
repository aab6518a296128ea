"""A client that keeps its socket open and reads nothing: it costs the web process little and others nothing."""

import pytest

from tests.chat.sockets import people
from tests.faults.deaf import deaf_socket
from tests.faults.replies import check_whole, failure
from tests.generation.workers import wait_until
from tests.site import Site, resident_bytes

WORDS = 5000
WORD = "abcdefghij" * 40
MAX_GROWTH_BYTES = 30_000_000


@pytest.mark.parametrize("html", [False, True], ids=["text", "html"])
def test_a_reader_that_never_reads_holds_up_nobody_and_gets_the_whole_text_later(faulty_site: Site, html: bool) -> None:
    """Whatever a stalled client had not read yet piled up in the server's memory."""
    deaf, other = people(faulty_site, 2)
    params = {"max_new_tokens": WORDS}
    with other.socket() as reading, deaf_socket(deaf, html=html) as stalled:
        check_whole(faulty_site, reading, reading.prompt("warm", params={"max_new_tokens": 20})["job"], "warm", 20)
        before = resident_bytes(faulty_site.up["pids"]["web"])
        text = f"first {WORD}"
        job = stalled.prompt(text, model="fast", params=params)["job"]
        others = reading.prompt("somebody else reads", model="fast", params=params)["job"]
        check_whole(faulty_site, reading, others, "somebody else reads", WORDS)
        wait_until(lambda: failure(faulty_site, job)[0] == "finished")
        stored = failure(faulty_site, job)[3]
        assert len(stored) > 200 * WORDS
        assert resident_bytes(faulty_site.up["pids"]["web"]) - before < MAX_GROWTH_BYTES
        stalled.acknowledges = True
        if html:
            assert stalled.end(job)["seq"] == WORDS + 1
            blocks = {index: block for frame in stalled.of(job, "html") for index, block in frame["changes"]}
            assert "".join(blocks.values()).count(WORD) == WORDS // 2
        else:
            check_whole(faulty_site, stalled, job, text, WORDS)
