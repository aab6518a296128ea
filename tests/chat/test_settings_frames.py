"""What the socket says of models and settings, and what a prompt that begins a conversation may bring."""

import json
from uuid import UUID, uuid4

from tests.chat.sockets import people, rows
from tests.site import Site


def test_it_says_how_each_models_line_is(site: Site) -> None:
    (ada,) = people(site)
    with ada.socket() as socket:
        (greeted,) = socket.hello["models"]
        socket.send("models")
        (asked,) = socket.until("models")["models"]
    for model in (greeted, asked):
        assert (model["name"], model["state"], model["paused"], model["context"]) == ("mock", "ready", False, 4096)
        assert model["waiting"] >= 0 and model["default_new_tokens"] == 64


def test_a_prompt_begins_its_conversation_with_the_settings_it_brings(site: Site) -> None:
    """Texts are read as the page's fields are, values as the protocol's; later ones change nothing."""
    (ada,) = people(site)
    settings = {"system_prompt": "be kind", "params": {"max_new_tokens": "3", "stop": ["x"], "seed": ""}}
    with ada.socket() as socket:
        assert socket.hello["settings"] == {"model": "", "changed": False}
        queued = socket.prompt("one two", settings=settings)
        assert queued["model"] == "mock"
        assert socket.end(queued["job"])["usage"]["prompt_tokens"] == 4
        again = socket.prompt("three", settings={"system_prompt": "be cruel"})
        socket.end(again["job"])
        assert socket.text(again["job"]) == "three three three"
    for job in (queued["job"], again["job"]):
        [(messages, params)] = rows(site, "SELECT messages, params FROM generation_job WHERE id = ?", UUID(job).hex)
        assert json.loads(messages)[0] == {"role": "system", "content": "be kind"}
        assert (json.loads(params)["max_new_tokens"], json.loads(params)["stop"]) == (3, ["x"])
    with ada.socket(queued["conversation"]) as socket:
        assert socket.hello["settings"] == {"model": "", "changed": True}


def test_wrong_settings_begin_nothing(site: Site) -> None:
    (ada,) = people(site)
    with ada.socket() as socket:
        for settings in (7, "x", {"params": {"temperature": 3}}, {"params": [1]}, {"model": "unheard-of"}, {"tone": 1}):
            reference = str(uuid4())
            socket.send("prompt", id=reference, text="one", settings=settings)
            error = socket.error()
            assert (error["code"], error["ref"]) == ("bad_params", reference)
    sql = "SELECT COUNT(*) FROM chat_conversation c JOIN auth_user u ON u.id = c.user_id WHERE u.username = ?"
    assert rows(site, sql, ada.name) == [(0,)]
