"""`manage.py benchmark` with a tiny random model: our engine and every peer, at the same work."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from generation.benchmark import peers
from generation.benchmark.ours import Tokenline
from generation.benchmark.runs import Contestant, Prompts, RunFailed
from generation.engine.spec import parse_models
from tests.engine import tiny
from tests.site import Lines
from tests.test_benchmark import command

NAMES = ["tokenline", "transformers' manager", "a generate per thread", "one token in turn"]


REQUESTS = Prompts(range(4, tiny.VOCAB_SIZE), [5, 9]).requests(3, 8)


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    found = [tiny.generate("llama", list(request.prompt), 8, eos=()) for request in REQUESTS]
    assert len({tuple(ids) for ids in found}) == 3
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny.model("llama").save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return path


def told(*arguments: str) -> str:
    out = StringIO()
    call_command("benchmark", *arguments, "--no-save", stdout=out)
    return out.getvalue()


@pytest.fixture
def contestants(folder: Path) -> Iterator[list[Contestant]]:
    (spec,) = parse_models(f"tiny={folder}")
    made: list[Contestant] = [Tokenline.load(spec, 3, lambda _: None)]
    try:
        model = peers.load_copy(spec, lambda _: None)
        made += [peers.make(peer.key, model, 3, 64) for peer in peers.PEERS]
        yield made
    finally:
        for contestant in made:
            contestant.close()


def test_all_give_the_ids_of_generate(expected: list[list[int]], contestants: list[Contestant]) -> None:
    """In float32 they are the same, so all of them did the same work."""
    for contestant in contestants:
        streams = contestant.run(REQUESTS)
        assert [stream.ids for stream in streams] == expected, contestant.name
        for stream in streams:
            assert stream.arrivals == sorted(stream.arrivals) and stream.first_token_seconds > 0


def test_a_late_prompt_joins_when_the_others_are_so_far(
    expected: list[list[int]], contestants: list[Contestant]
) -> None:
    late = [*REQUESTS[:2], replace(REQUESTS[2], after=3)]
    for contestant in contestants[:2]:
        first, second, joined = contestant.run(late)
        assert [first.ids, second.ids, joined.ids] == expected
        assert joined.submitted_at >= max(first.arrivals[2], second.arrivals[2])


def test_threads_end_at_their_next_token_when_it_is_interrupted(contestants: list[Contestant]) -> None:
    by_threads = contestants[2]
    by_threads.close()
    with pytest.raises(RunFailed, match="interrupted"):
        by_threads.run(REQUESTS)


def test_it_measures_peers_beside_our_engine(folder: Path, tmp_path: Path, settings: Any) -> None:
    settings.GENERATION_MODELS = f"tiny={folder}"
    output = tmp_path / "figures.json"
    text = told("--sequences", "1,2", "--new-tokens", "3", "--rounds", "1", "--scenes", "--json", str(output))
    for name in NAMES:
        assert text.count(f"  {name} ") >= 5
        assert f"memory of {name}: " in text
    assert "tokenline's tokens/s to those of" in text
    found = json.loads(output.read_text())
    assert (found["device"], found["dtype"]) == ("cpu", "float32")
    assert list(found["contestants"]) == NAMES
    assert {name: set(cells) for name, cells in found["ratios"].items()} == {name: {"1", "2"} for name in NAMES[1:]}
    assert found["bytes_of_loading"]["tokenline"] > 0
    assert len(found["scenes"]) == 6
    for scene in found["scenes"]:
        assert scene["seconds"] > 0 and scene["ratio"] > 0
        assert f"{scene['name']}: " in text


def test_ctrl_c_ends_every_peer(folder: Path, tmp_path: Path) -> None:
    """The manager's thread is no daemon: left alone it keeps the process alive for ever."""
    process = command(
        tmp_path,
        *("--sequences", "1,4", "--new-tokens", "20", "--rounds", "999", "--peers", "manager,threads"),
        GENERATION_MODELS=f"tiny={folder}",
    )
    try:
        lines = Lines(process)
        lines.wait_for("round 1 of 999, 4 at a time")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "Interrupted." in lines.wait_for_end()
    finally:
        process.kill()


def test_it_takes_only_the_peers_that_are_named(folder: Path, settings: Any) -> None:
    settings.GENERATION_MODELS = f"tiny={folder}"
    text = told("--sequences", "2", "--new-tokens", "2", "--rounds", "1", "--peers", "turns,threads")
    assert NAMES[1] not in text and NAMES[2] in text and NAMES[3] in text


def test_it_needs_slots_for_its_scenes(folder: Path, settings: Any) -> None:
    settings.GENERATION_MODELS = f"tiny={folder}?slots=2&context=80"
    with pytest.raises(CommandError, match="needs 8 slots and a context of 700; the model has 2 and 80"):
        told("--scenes", "--peers", "none", "--prompt-tokens", "5")
