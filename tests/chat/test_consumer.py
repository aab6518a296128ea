"""The protocol over real sockets: frames, their order, and that every reader gets each token once."""

import json
from uuid import UUID, uuid4

import pytest

from tests.chat.sockets import Frame, Person, Socket, check_order, job_row, people, rows, wait_for_rows
from tests.site import Site

FINITE = {"max_new_tokens": 12}


@pytest.fixture
def ada(site: Site) -> Person:
    return people(site)[0]


def test_it_says_hello(ada: Person) -> None:
    with ada.socket() as socket:
        hello = socket.hello
    assert hello["protocol"] == 1
    assert hello["conversation"] is None
    assert hello["active"] == []
    assert [model["name"] for model in hello["models"]] == ["mock"]
    assert hello["limits"]["max_prompt_chars"] > 0


def test_it_streams_a_reply_in_order_and_keeps_what_it_sent(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        queued = socket.prompt("one two three", params=FINITE)
        job = queued["job"]
        end = socket.end(job)
        check_order(socket.of(job))
        text = socket.text(job)
    assert text == "one two three one two three one two three one two three"
    assert job_row(site, job) == ("finished", text, 13, "length")
    assert end["reason"] == "length"
    assert end["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "cached_tokens": 0}
    assert set(end["timings"]) == {"queue", "prefill", "first_token", "total"}
    assert queued["text"] == "one two three"
    assert (queued["position"], queued["queue_size"]) == (1, 1)
    assert {"message", "reply", "conversation", "client_id", "eta_seconds", "paused"} <= set(queued)
    frames = socket.of(job)
    assert {frame["conversation"] for frame in frames} == {queued["conversation"]}
    assert len({frame["origin"] for frame in frames if frame["type"] == "token"}) == 1


def test_a_stop_string_ends_the_reply(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        job = socket.prompt("red green blue", params={"stop": ["blue"]})["job"]
        assert socket.end(job)["reason"] == "stop_string"
        assert socket.text(job) == "red green "
    assert job_row(site, job)[:2] == ("finished", "red green ")


def test_a_conversation_begins_with_its_first_prompt_and_goes_on_on_that_socket(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        first = socket.prompt("alpha", params=FINITE)
        socket.end(first["job"])
        second = socket.prompt("beta", params=FINITE)
        socket.end(second["job"])
    assert first["conversation"] == second["conversation"]
    with ada.socket(first["conversation"]) as again:
        assert again.hello["conversation"] == first["conversation"]
    (messages,) = rows(site, "SELECT messages FROM generation_job WHERE id = ?", UUID(second["job"]).hex)[0]
    contents = [(message["role"], message["content"]) for message in json.loads(messages)]
    assert contents == [("user", "alpha"), ("assistant", " ".join(["alpha"] * 12)), ("user", "beta")]


def test_an_unused_socket_leaves_no_conversation(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        socket.send("prompt", id=str(uuid4()), text="   ")
        assert socket.error()["code"] == "empty_prompt"
    own = "SELECT count(*) FROM chat_conversation c JOIN auth_user u ON u.id = c.user_id WHERE u.username = ?"
    assert rows(site, own, ada.name) == [(0,)]


def messages_of(site: Site, job: str) -> list[str]:
    (messages,) = rows(site, "SELECT messages FROM generation_job WHERE id = ?", UUID(job).hex)[0]
    return [message["content"] for message in json.loads(messages)]


def test_prompts_may_overlap_and_unfinished_turns_are_left_out(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        first = socket.prompt("slow words", params={"max_new_tokens": 200})
        socket.until("token", job=first["job"])
        second = socket.prompt("meanwhile", params={"max_new_tokens": 3})
        socket.end(second["job"])
        socket.send("cancel", job=first["job"])
        assert not [frame for frame in socket.of(first["job"]) if frame["type"] in ("cancelled", "finished")]
        socket.end(first["job"])
        rooted = socket.prompt("anew", parent=None, params={"max_new_tokens": 3})
        socket.end(rooted["job"])
        child = socket.prompt("below", parent=second["reply"], params={"max_new_tokens": 3})
        socket.end(child["job"])
    assert messages_of(site, second["job"]) == ["meanwhile"]
    assert messages_of(site, rooted["job"]) == ["anew"]
    cut = socket.text(first["job"])
    assert messages_of(site, child["job"]) == [
        *("slow words", cut),
        *("meanwhile", "meanwhile meanwhile meanwhile"),
        "below",
    ]


# One id, one job.


def test_the_same_id_sent_twice_at_once_is_one_job(ada: Person, site: Site) -> None:
    """A double click or a resend after a reconnect made two jobs and two replies."""
    client_id = str(uuid4())
    with ada.socket() as one, ada.socket() as other:
        for socket in (one, one, other):
            socket.send("prompt", id=client_id, text="only once", params=FINITE)
        answers = [one.until("queued"), one.until("queued"), other.until("queued")]
        jobs = {answer["job"] for answer in answers}
        assert len(jobs) == 1
        assert len({answer["conversation"] for answer in answers}) == 1
        (job,) = jobs
        for socket in (one, other):
            socket.end(job)
            assert socket.text(job) == " ".join(["only once"] * 6)
            assert [frame["seq"] for frame in socket.of(job, "token")] == list(range(1, 13))
    with ada.socket(answers[0]["conversation"]) as later:
        again = later.prompt("only once", client_id=client_id)
        assert again["job"] == job
        later.end(job)
        assert later.text(job) == one.text(job)
    assert rows(site, "SELECT count(*) FROM generation_job WHERE client_id = ?", UUID(client_id).hex) == [(1,)]
    messages = "SELECT count(*) FROM chat_message WHERE conversation_id = ?"
    assert rows(site, messages, UUID(answers[0]["conversation"]).hex) == [(2,)]


@pytest.mark.parametrize("html", [False, True], ids=["tokens", "html"])
def test_the_same_id_on_a_socket_of_another_conversation_is_that_job(ada: Person, html: bool) -> None:
    with ada.socket() as socket, ada.socket(html=html) as other:
        asked = socket.prompt("here", params={"max_new_tokens": 40})
        elsewhere = other.prompt("there", params={"max_new_tokens": 1})
        other.end(elsewhere["job"])
        again = other.prompt("here", client_id=asked["client_id"])
        assert (again["job"], again["conversation"]) == (asked["job"], asked["conversation"])
        assert again["conversation"] != elsewhere["conversation"]
        other.end(asked["job"])
        assert {frame["conversation"] for frame in other.of(asked["job"])} == {asked["conversation"]}
        assert other.of(asked["job"], "html" if html else "token")
        # The socket still belongs to its own conversation.
        assert other.prompt("there too", params={"max_new_tokens": 1})["conversation"] == elsewhere["conversation"]


def test_a_prompt_sent_just_before_its_tab_closed_is_accepted(ada: Person, site: Site) -> None:
    """An answer to a closing socket raised in the consumer and ended it, with the frames that were still to be read."""
    before = site.lines.count
    client_id = str(uuid4())
    with ada.socket() as socket:
        for number in range(100):
            socket.send("nonsense", id=str(number))
        socket.send("prompt", id=client_id, text="see you later", params=FINITE)
    asked = "SELECT j.id, m.conversation_id FROM generation_job j JOIN chat_replyjob r ON r.job_id = j.id"
    asked += " JOIN chat_message m ON m.id = r.message_id WHERE j.client_id = ?"
    ((job, conversation),) = wait_for_rows(site, asked, UUID(client_id).hex)
    with ada.socket(str(UUID(conversation))) as later:
        later.send("follow", job=str(UUID(job)))
        later.end(str(UUID(job)))
        assert later.text(str(UUID(job))) == " ".join(["see you later"] * 4)
    assert "Exception inside application" not in "\n".join(site.lines.text.split("\n")[before:])


# Stop.


def test_it_cancels_a_running_reply_and_keeps_its_text(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        job = socket.prompt("a b c d", params={"max_new_tokens": 500})["job"]
        socket.until(lambda frame: frame["type"] == "token" and frame["seq"] >= 5, job=job)
        socket.send("cancel", job=job)
        end = socket.end(job)
        check_order(socket.of(job))
        text = socket.text(job)
    assert end["type"] == "cancelled"
    assert job_row(site, job)[:3] == ("cancelled", text, end["seq"])
    assert 5 <= len(text.split()) < 500


def test_it_cancels_by_the_prompts_id(ada: Person) -> None:
    client_id = str(uuid4())
    with ada.socket() as socket:
        socket.send("prompt", id=client_id, text="a b", params={"max_new_tokens": 500})
        socket.send("cancel", id=client_id)
        job = socket.until("queued")["job"]
        assert socket.end(job)["type"] == "cancelled"
        socket.send("cancel", job=job)
        socket.still_answers()


# Another reply, and going on.


def test_it_writes_another_reply_to_the_same_prompt(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        first = socket.prompt("say it", params=FINITE)
        socket.end(first["job"])
        for message in (first["message"], first["reply"]):
            client_id = str(uuid4())
            socket.send("regenerate", id=client_id, message=message, params=FINITE)
            other = socket.until(lambda frame, wanted=client_id: frame.get("client_id") == wanted)
            assert other["message"] == first["message"]
            assert other["reply"] != first["reply"]
            socket.end(other["job"])
            assert messages_of(site, other["job"]) == ["say it"]


def go_on(socket: Socket, queued: Frame, **params: int) -> Frame:
    client_id = str(uuid4())
    socket.send("continue", id=client_id, message=queued["reply"], params=params)
    return socket.until(lambda frame: client_id in (frame.get("client_id"), frame.get("ref")))


def test_it_goes_on_with_a_reply_that_ended_at_its_length(ada: Person, site: Site) -> None:
    with ada.socket() as socket:
        first = socket.prompt("one two three", params={"max_new_tokens": 4})
        socket.end(first["job"])
        more = go_on(socket, first, max_new_tokens=3)
        assert more["type"] == "queued"
        assert (more["reply"], more["message"]) == (first["reply"], first["message"])
        socket.end(more["job"])
        assert socket.text(first["job"]) == "one two three one"
        assert socket.text(more["job"]) == " two three one"
        assert messages_of(site, more["job"]) == ["one two three", "one two three one"]
    with ada.socket(first["conversation"], html=True) as html:
        html.send("follow", job=more["job"])
        html.end(more["job"])
        last = html.of(more["job"], "html")[-1]
        assert "one two three one two three one" in "".join(change[1] for change in last["changes"])


def test_only_a_reply_that_ended_at_its_length_goes_on(ada: Person) -> None:
    with ada.socket() as socket:
        first = socket.prompt("one two", params={"stop": ["two"]})
        socket.end(first["job"])
        refused = go_on(socket, first)
        assert (refused["type"], refused["code"]) == ("error", "bad_frame")
