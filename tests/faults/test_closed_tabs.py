"""A tab that is closed, or only hidden, while its reply waits or grows: under the setting that lets a reply go on, and
under the one that gives its place to others.
"""

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tests.browser import Person as Visitor
from tests.browser import expect_begun, expect_whole, numbered, say
from tests.chat.sockets import people, rows, wait_for_rows
from tests.faults.conftest import ENVIRONMENT
from tests.faults.replies import check_whole
from tests.site import Site, running

GRACE_SECONDS = 1
HIDE = """() => {
  for (const [name, value] of [["hidden", true], ["visibilityState", "hidden"]])
    Object.defineProperty(document, name, { get: () => value });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module", params=[False, True], ids=["goes on", "is cancelled"])
def cancels(request: pytest.FixtureRequest) -> bool:
    """Whether a reply that nobody has open is cancelled."""
    return bool(request.param)


@pytest.fixture(scope="module")
def site(cancels: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One reply at a time."""
    environ = ENVIRONMENT | {"GENERATION_MODELS": "mock=mock:?rate=20"}
    if cancels:
        environ["GENERATION_CANCEL_ON_DISCONNECT_SECONDS"] = str(GRACE_SECONDS)
    site = Site(tmp_path_factory.mktemp("tabs"), "--no-flower", "--concurrency", "1", **environ)
    with running(site):
        yield site


def end_of_row(site: Site, job: str) -> str:
    """The state in which it ended, by its row: nobody has it open."""
    statement = "SELECT state FROM generation_job WHERE id = ? AND state NOT IN ('queued', 'running')"
    return str(wait_for_rows(site, statement, UUID(job).hex)[0][0])


def test_a_closed_tabs_reply_goes_on_or_frees_its_slot(site: Site, cancels: bool) -> None:
    """Sources disagree on what is right, so it is a setting (gradio-app/gradio#8708, gradio-app/gradio#6239)."""
    leaver, stayer = people(site, 2)
    with stayer.socket() as patient:
        with leaver.socket() as socket:
            running = socket.prompt("left while it grows", params={"max_new_tokens": 100})
            socket.until("token", job=running["job"])
            queued = socket.prompt("left while it waits", parent=None, params={"max_new_tokens": 5})
            behind = patient.prompt("who stays", params={"max_new_tokens": 5})["job"]
        # Whichever it is, whoever stays is answered in turn.
        check_whole(site, patient, behind, "who stays", 5)
        ends = [end_of_row(site, job) for job in (running["job"], queued["job"])]
    if cancels:
        assert ends == ["cancelled", "cancelled"]
        assert rows(site, "SELECT epoch FROM generation_job WHERE id = ?", UUID(queued["job"]).hex) == [(0,)]
        return
    assert ends == ["finished", "finished"]
    with leaver.socket(running["conversation"]) as socket:
        for frame, text, words in ((running, "left while it grows", 100), (queued, "left while it waits", 5)):
            socket.send("follow", job=frame["job"])
            check_whole(site, socket, frame["job"], text, words)


def test_a_hidden_tab_is_not_a_closed_one(site: Site, sign_in: Callable[..., Visitor]) -> None:
    """Switching to another tab looked like closing this one, and its reply was dropped (gradio-app/gradio#13761)."""
    visitor = sign_in(site)
    page = visitor.page
    say(page, numbered())
    expect_begun(page, "w3")
    page.evaluate(HIDE)
    front = visitor.tab(site.url)
    front.bring_to_front()
    # 64 words, 20 a second: longer than the time after which a closed tab's reply is cancelled.
    expect_whole(page, numbered())
