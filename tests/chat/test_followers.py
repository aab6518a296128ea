"""Several readers of one reply: tabs, latecomers, slow ones, and those who want it as HTML."""

import pytest
import redis

from generation.delivery import stream
from tests.chat.sockets import Person, check_order, job_row, people
from tests.site import Site

FINITE = {"max_new_tokens": 12}


@pytest.fixture
def ada(site: Site) -> Person:
    return people(site)[0]


def test_two_tabs_see_the_same_reply(ada: Person) -> None:
    with ada.socket() as typing:
        first = typing.prompt("warm up", params={"max_new_tokens": 1})
        typing.end(first["job"])
        with ada.socket(first["conversation"]) as watching:
            queued = typing.prompt("to both", params=FINITE)
            heard = watching.until("queued")
            same = ("job", "message", "reply", "client_id", "text")
            assert [heard[key] for key in same] == [queued[key] for key in same]
            for socket in (typing, watching):
                socket.end(queued["job"])
                check_order(socket.of(queued["job"]))
            assert typing.text(queued["job"]) == watching.text(queued["job"]) == " ".join(["to both"] * 6)


@pytest.mark.parametrize("after", [0, 7])
def test_a_second_socket_follows_a_running_reply(ada: Person, after: int) -> None:
    with ada.socket() as typing:
        queued = typing.prompt("a b c d e", params={"max_new_tokens": 60})
        job = queued["job"]
        seen = typing.until(lambda frame: frame["type"] == "token" and frame["seq"] >= 10, job=job)
        with ada.socket(queued["conversation"]) as second:
            (active,) = second.hello["active"]
            assert (active["job"], active["state"]) == (job, "running")
            assert active["seq"] >= 10
            second.send("follow", job=job, after=after, origin=seen["origin"])
            second.end(job)
            typing.end(job)
            frames = second.of(job)
            assert frames[0]["type"] == "started"
            assert frames[0]["origin"] == seen["origin"]
            tokens = [frame["seq"] for frame in second.of(job, "token")]
            assert tokens == list(range(after + 1, 61))
            assert typing.text(job).endswith(second.text(job))


def test_a_late_word_of_a_prompt_tells_nothing_twice(site: Site, ada: Person) -> None:
    """Somebody who left a tab in the middle of a reply was shown it from its beginning again in the next one, when the
    first tab's word to the others came late.
    """
    with ada.socket() as typing:
        queued = typing.prompt("a b c d e", params={"max_new_tokens": 60})
        job = queued["job"]
        seen = typing.until(lambda frame: frame["type"] == "token" and frame["seq"] >= 10, job=job)
    with ada.socket(queued["conversation"]) as second:
        assert [active["job"] for active in second.hello["active"]] == [job]
        with redis.Redis.from_url(site.up["redis_url"]) as client:
            late = stream.wire({"type": "conversation.job", "job": job, "from": "the first tab"})
            client.publish(f"asgi__group__conversation.{queued['conversation']}", late)
        second.still_answers()
        second.send("follow", job=job, after=seen["seq"], origin=seen["origin"])
        second.end(job)
        assert [frame["seq"] for frame in second.of(job, "token")] == list(range(seen["seq"] + 1, 61))


@pytest.mark.parametrize("after", [0, 5, 12])
def test_it_follows_a_reply_that_has_ended(ada: Person, after: int) -> None:
    with ada.socket() as socket:
        queued = socket.prompt("a b c", params=FINITE)
        job = queued["job"]
        end = socket.end(job)
    with ada.socket(queued["conversation"]) as later:
        later.send("follow", job=job, after=after)
        assert later.next()["type"] == "started"
        assert later.end(job) == end
        assert [frame["seq"] for frame in later.of(job, "token")] == list(range(after + 1, 13))


def test_a_reply_of_another_origin_is_shown_anew(ada: Person) -> None:
    with ada.socket() as socket:
        queued = socket.prompt("a b c", params=FINITE)
        job = queued["job"]
        socket.end(job)
    with ada.socket(queued["conversation"]) as later:
        later.send("follow", job=job, after=5, origin=77)
        later.end(job)
        assert [frame["type"] for frame in later.of(job)] == ["started", "snapshot", "finished"]
        assert later.text(job) == socket.text(job)


def test_blocks_of_html_are_the_whole_reply_at_the_end(ada: Person) -> None:
    text = "# Title\n\nsome *words* and `code`\n\n- item"
    with ada.socket(html=True) as socket:
        job = socket.prompt(text, params={"max_new_tokens": 40})["job"]
        socket.end(job)
        assert not socket.of(job, "token", "snapshot")
        shown: list[str] = []
        for frame in socket.of(job, "html"):
            del shown[frame["blocks"] :]
            for index, block in frame["changes"]:
                shown[index:] = [block, *shown[index + 1 :]]
    with ada.socket(socket.of(job)[0]["conversation"], html=True) as later:
        later.send("follow", job=job)
        later.end(job)
        frames = later.of(job, "html")
        whole = [block for _, block in frames[-1]["changes"]] or [block for _, block in frames[0]["changes"]]
    assert len(frames) <= 2
    assert "".join(shown) == "".join(whole)
    assert "<h1" in whole[0]


def test_a_page_that_reads_nothing_gets_256_tokens_and_the_rest_when_it_answers(ada: Person, site: Site) -> None:
    """django/channels_redis#131: after about a hundred fast messages the rest of a reply was gone."""
    with ada.socket() as socket:
        socket.acknowledges = False
        queued = socket.prompt("w", params={"max_new_tokens": 300})
        job = queued["job"]
        with ada.socket(queued["conversation"]) as other:
            other.send("follow", job=job)
            other.end(job)
        socket.until(lambda frame: frame["type"] == "token" and frame["seq"] == 256, job=job)
        socket.still_answers()
        assert len(socket.of(job, "token")) == 256
        socket.send("ack", job=job, seq=200)
        socket.end(job)
        check_order(socket.of(job))
        assert socket.text(job) == job_row(site, job)[1]


def test_nothing_of_a_reply_stays_with_a_socket_after_its_end(ada: Person, site: Site) -> None:
    """A tab that stays open for a day must not collect the group of every reply it has ever shown."""
    with redis.Redis.from_url(site.up["redis_url"]) as client, ada.socket() as socket:
        job = socket.prompt("a b", params=FINITE)["job"]
        group = f"asgi__group__job.{job}"
        assert client.pubsub_numsub(group) == [(group.encode(), 1)]
        socket.end(job)
        socket.still_answers()
        assert client.pubsub_numsub(group) == [(group.encode(), 0)]


def test_a_message_of_an_unknown_type_is_logged_and_the_socket_survives(ada: Person, site: Site) -> None:
    """django/channels#2075: an event of a newer version raised in the consumer and ended its socket."""
    with redis.Redis.from_url(site.up["redis_url"]) as client, ada.socket() as socket:
        queued = socket.prompt("a b c", params={"max_new_tokens": 60})
        before = site.lines.count
        for group in (f"job.{queued['job']}", f"conversation.{queued['conversation']}"):
            for kind in ("chat.delta", "job.sparkles", "__init__", "send.frame", ""):
                client.publish(f"asgi__group__{group}", stream.wire({"type": kind, "job": queued["job"]}))
        site.lines.wait_for("unknown type 'job.sparkles'", after=before)
        socket.end(queued["job"])
        check_order(socket.of(queued["job"]))
        socket.still_answers()
