"""What belongs to another person or conversation is answered like what does not exist."""

import json
from typing import Any
from uuid import uuid4

from tests.chat.sockets import open_socket, people, refused
from tests.site import Site

ID = "9b3c7a1e-5a55-4a5e-8f2f-3f1b8d3f0a11"


def test_another_persons_things_are_like_none(site: Site) -> None:
    """knoxiboy/DoubtDesk#1338: whoever knew an id could read and drive another person's chat."""
    ada, eve = people(site, 2)
    with ada.socket() as hers, eve.socket() as own:
        secret = hers.prompt("the secret words", params={"max_new_tokens": 150})
        hers.until("token", job=secret["job"])
        begun = own.prompt("mine", params={"max_new_tokens": 1})
        own.end(begun["job"])
        with eve.socket(begun["conversation"]) as socket:
            probes: list[dict[str, Any]] = [
                {"type": "follow", "job": secret["job"]},
                {"type": "cancel", "job": secret["job"]},
                {"type": "cancel", "id": secret["client_id"]},
                {"type": "regenerate", "id": ID, "message": secret["reply"]},
                {"type": "regenerate", "id": ID, "message": secret["message"]},
                {"type": "continue", "id": ID, "message": secret["reply"]},
                {"type": "prompt", "id": ID, "text": "x", "parent": secret["reply"]},
            ]
            for probe in probes:
                missing = {
                    key: str(uuid4())
                    if key in ("job", "message", "parent") or probe == {"type": "cancel", "id": value}
                    else value
                    for key, value in probe.items()
                }
                foreign, none = refused(socket, json.dumps(probe)), refused(socket, json.dumps(missing))
                assert foreign["code"] == none["code"] == "not_found"
                assert foreign["message"] == none["message"]
            # An ack of somebody else's reply is no frame that needs an answer, and joins nothing.
            socket.send("ack", job=secret["job"], seq=1)
            # The same client id of another person is another prompt.
            other = socket.prompt("my own", client_id=secret["client_id"], params={"max_new_tokens": 2})
            assert other["job"] != secret["job"]
            hers.end(secret["job"])
            socket.end(other["job"])
            socket.still_answers()
            assert "secret" not in json.dumps(socket.frames)
        assert [frame["type"] for frame in hers.of(secret["job"])][-1] == "finished"
        own.still_answers()
        assert "secret" not in json.dumps(own.frames)


def test_a_job_of_ones_other_conversation_is_not_followed_here(site: Site) -> None:
    (ada,) = people(site)
    with ada.socket() as one, ada.socket() as other:
        first = one.prompt("here", params={"max_new_tokens": 1})
        second = other.prompt("there", params={"max_new_tokens": 1})
        one.end(first["job"])
        other.end(second["job"])
        assert refused(one, json.dumps({"type": "follow", "job": second["job"]}))["code"] == "not_found"
        answer = refused(one, json.dumps({"type": "regenerate", "id": ID, "message": second["reply"]}))
        assert answer["code"] == "not_found"


def test_a_foreign_conversation_is_closed_like_a_missing_one(site: Site) -> None:
    ada, eve = people(site, 2)
    with ada.socket() as socket:
        queued = socket.prompt("mine", params={"max_new_tokens": 1})
        socket.end(queued["job"])
    closings = []
    for conversation in (queued["conversation"], str(uuid4())):
        with open_socket(site, conversation, **eve.headers) as refused_socket:
            closings.append((refused_socket.close_code(), refused_socket.frames))
    assert closings == [(4404, []), (4404, [])]
