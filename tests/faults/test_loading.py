"""Models that can't be loaded: which one and why, for the operator and for people; and workers that have idled."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.chat.sockets import Frame, Socket, people, rows
from tests.faults.replies import check_whole
from tests.generation.workers import wait_until
from tests.site import Site


def test_a_model_that_can_not_be_loaded_is_named_everywhere_and_the_other_one_answers(
    start_site: Callable[..., Site],
) -> None:
    models = "mock=mock:?rate=50 broken=/nowhere/at/all/model.gguf"
    site = start_site(None, "--no-flower", GENERATION_MODELS=models, GENERATION_LEASE_SECONDS="60")
    site.lines.wait_for("model broken (/nowhere/at/all/model.gguf) could not be loaded")
    warning = site.lines.wait_for("warning: model broken failed to load")
    assert warning.startswith("up") and "there is no file /nowhere/at/all/model.gguf" in warning
    assert (site.var / "up.json").exists()
    (entries,) = rows(site, "SELECT models FROM generation_worker")
    assert {entry["name"]: entry["state"] for entry in json.loads(entries[0])} == {"mock": "ready", "broken": "failed"}
    with pytest.raises(urllib.error.HTTPError) as failed:
        urllib.request.urlopen(f"{site.url}/health/ready")
    with failed.value as answer:
        body = json.load(answer)
    (reason,) = body["reasons"]
    assert "model broken failed to load" in reason and "/nowhere/at/all/model.gguf" in reason
    assert body["usable"]
    person, operator = people(site, 2)
    rows(site, "UPDATE auth_user SET is_staff = 1 WHERE username = ?", operator.name)
    with person.socket() as socket:
        refusal = refused_model(socket)
        assert refusal["message"] == "The model broken could not be loaded: its files are missing."
        check_whole(site, socket, socket.prompt("still here", params={"max_new_tokens": 4})["job"], "still here", 4)
    with operator.socket() as socket:
        assert "/nowhere/at/all/model.gguf" in refused_model(socket)["message"]


def refused_model(socket: Socket) -> Frame:
    """The refusal of a prompt to the broken model."""
    client_id = str(uuid4())
    socket.send("prompt", id=client_id, text="hi", model="broken")
    refusal = socket.error()
    assert (refusal["code"], refusal["ref"]) == ("model_unavailable", client_id)
    return refusal


def test_a_worker_that_has_idled_answers(faulty_site: Site) -> None:
    """The batching thread ended for want of requests, and every later one hung (huggingface/transformers#48303)."""
    (person,) = people(faulty_site)
    with person.socket() as socket:
        for _ in range(2):
            seen: set[str] = set()

            def has_ticked(seen: set[str] = seen) -> bool:
                seen.add(rows(faulty_site, "SELECT last_seen_at FROM generation_worker WHERE stopped_at IS NULL")[0][0])
                return len(seen) > 3

            wait_until(has_ticked)
            check_whole(faulty_site, socket, socket.prompt("awake", params={"max_new_tokens": 4})["job"], "awake", 4)
