"""A tab that is closed, or only hidden, while its reply waits or grows: under the setting that lets a reply go on, and
under the one that gives its place to others. Sources disagree on what is right, so it is a setting
(gradio-app/gradio#8708, gradio-app/gradio#6239).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.browser import Person as Visitor
from tests.browser import expect_begun, expect_whole, numbered, say
from tests.chat.sockets import Frame, Person, people, rows, wait_for_rows
from tests.faults.conftest import ENVIRONMENT
from tests.faults.replies import check_whole
from tests.site import Site, running

GRACE_SECONDS = 1
HIDE = """() => {
  for (const [name, value] of [["hidden", true], ["visibilityState", "hidden"]])
    Object.defineProperty(document, name, { get: () => value });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@contextmanager
def one_at_a_time(folder: Path, **environ: str) -> Iterator[Site]:
    environ = ENVIRONMENT | {"GENERATION_MODELS": "mock=mock:?rate=20"} | environ
    with running(Site(folder, "--no-flower", "--concurrency", "1", **environ)) as site:
        yield site


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A reply goes on that nobody has open."""
    with one_at_a_time(tmp_path_factory.mktemp("lasting")) as site:
        yield site


@pytest.fixture(scope="module")
def cancelling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A reply that nobody has open is cancelled."""
    grace = {"GENERATION_CANCEL_ON_DISCONNECT_SECONDS": str(GRACE_SECONDS)}
    with one_at_a_time(tmp_path_factory.mktemp("cancelling"), **grace) as site:
        yield site


def end_of_row(site: Site, job: str) -> str:
    """The state in which it ended, by its row: nobody has it open."""
    statement = "SELECT state FROM generation_job WHERE id = ? AND state NOT IN ('queued', 'running')"
    return str(wait_for_rows(site, statement, UUID(job).hex)[0][0])


def leave(site: Site) -> tuple[Person, list[Frame], list[str]]:
    """Somebody leaves one reply while it grows and one while it waits: who, which, and how they ended."""
    leaver, stayer = people(site, 2)
    with stayer.socket() as patient:
        with leaver.socket() as socket:
            growing = socket.prompt("left while it grows", params={"max_new_tokens": 100})
            socket.until("token", job=growing["job"])
            queued = socket.prompt("left while it waits", parent=None, params={"max_new_tokens": 5})
            behind = patient.prompt("who stays", params={"max_new_tokens": 5})["job"]
        # Whichever way it goes, whoever stays is answered in turn.
        check_whole(site, patient, behind, "who stays", 5)
        return leaver, [growing, queued], [end_of_row(site, frame["job"]) for frame in (growing, queued)]


def test_a_closed_tabs_reply_goes_on(lasting: Site) -> None:
    leaver, (growing, queued), ends = leave(lasting)
    assert ends == ["finished", "finished"]
    with leaver.socket(growing["conversation"]) as socket:
        for frame, text, words in ((growing, "left while it grows", 100), (queued, "left while it waits", 5)):
            socket.send("follow", job=frame["job"])
            check_whole(lasting, socket, frame["job"], text, words)


def test_a_closed_tabs_reply_frees_its_slot(cancelling: Site) -> None:
    _, (_, queued), ends = leave(cancelling)
    assert ends == ["cancelled", "cancelled"]
    assert rows(cancelling, "SELECT epoch FROM generation_job WHERE id = ?", UUID(queued["job"]).hex) == [(0,)]


def test_a_hidden_tab_is_not_a_closed_one(cancelling: Site, sign_in: Callable[..., Visitor]) -> None:
    """Switching to another tab looked like closing this one, and its reply was dropped (gradio-app/gradio#13761)."""
    visitor = sign_in(cancelling)
    page = visitor.page
    say(page, numbered())
    expect_begun(page, "w3")
    page.evaluate(HIDE)
    front = visitor.tab(cancelling.url)
    front.bring_to_front()
    # 64 words, 20 a second: longer than the time after which a closed tab's reply is cancelled.
    expect_whole(page, numbered())
