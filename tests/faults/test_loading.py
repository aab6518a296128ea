"""Models that can't be loaded: which one and why, for the operator and for people; and workers that have idled."""

import json
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.chat.sockets import people, rows
from tests.faults.replies import check_whole
from tests.generation.workers import wait_until
from tests.site import Site


class HalfReadySite(Site):
    """One that has no up.json yet, since it isn't ready."""

    @cached_property
    def url(self) -> str:  # type: ignore[override]
        parts = urlsplit(self.manage("link").stdout.split()[-1])
        return f"{parts.scheme}://{parts.netloc}"


def test_a_model_that_can_not_be_loaded_is_named_everywhere_and_the_other_one_answers(tmp_path: Path) -> None:
    models = "mock=mock:?rate=50 broken=/nowhere/at/all/model.gguf"
    site = HalfReadySite(tmp_path, "--no-flower", GENERATION_MODELS=models, GENERATION_LEASE_SECONDS="60").launch()
    assert isinstance(site, HalfReadySite)
    try:
        site.lines.wait_for("model broken (/nowhere/at/all/model.gguf) could not be loaded")
        site.lines.wait_for(" ready.")
        (entries,) = rows(site, "SELECT models FROM generation_worker")
        assert {entry["name"]: entry["state"] for entry in json.loads(entries[0])} == {
            "mock": "ready",
            "broken": "failed",
        }
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{site.url}/health/ready")
        with failed.value as answer:
            (reason,) = json.load(answer)["reasons"]
        assert "model broken failed to load" in reason and "/nowhere/at/all/model.gguf" in reason
        (person,) = people(site)
        with person.socket() as socket:
            socket.send("prompt", id="6a1ad1a5-2b4f-4a1c-9a55-0d3e4a4f1f10", text="hi", model="broken")
            refusal = socket.error()
            assert (refusal["code"], refusal["ref"]) == ("model_unavailable", "6a1ad1a5-2b4f-4a1c-9a55-0d3e4a4f1f10")
            assert "broken" in refusal["message"] and "could not be loaded" in refusal["message"]
            check_whole(site, socket, socket.prompt("still here", params={"max_new_tokens": 4})["job"], "still here", 4)
    finally:
        site.stop()
        print(site.lines.text)


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
