"""The README's examples of the engine run as they stand there, but for their model."""

import re
import subprocess
import sys

import pytest

from tests.environment import ROOT

MODEL = "smollm2=builtin:smollm2-135m"
MOCK = "mock=mock:?rate=200"
NO_SITE = "\nimport sys\nassert not {'django', 'celery', 'redis'} & set(sys.modules)\n"

MODELS = [pytest.param(MOCK, id="mock"), pytest.param(MODEL, id="smollm2", marks=pytest.mark.slow)]


def examples() -> list[str]:
    section = (ROOT / "README.md").read_text().split("\n## The engine alone\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def lines_of(example: str, model: str) -> list[str]:
    assert example.count(MODEL) == 1
    script = example.replace(MODEL, model) + NO_SITE
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if not line.startswith("smollm2: ")]


@pytest.mark.parametrize("model", MODELS)
def test_two_more_join_when_the_first_of_three_ends(model: str) -> None:
    by_steps, _ = examples()
    running: set[str] = set()
    seen: list[set[str]] = []
    for line in lines_of(by_steps, model):
        name, kind, *_ = line.split(" ") + [""]
        if kind == "started":
            running.add(name)
        elif kind == "end":
            running.remove(name)
        else:
            assert kind not in ("token", "prefill") or name in running
        if not seen or seen[-1] != running:
            seen.append(set(running))
    assert {"first", "second", "third"} in seen
    assert {"second", "third", "fourth", "fifth"} in seen
    assert max(map(len, seen)) == 4 and seen[-1] == set()


@pytest.mark.parametrize("model", MODELS)
def test_each_step_tells_replies_apart_by_their_identifiers(model: str) -> None:
    _, by_identifier = examples()
    shown = "\n".join(lines_of(by_identifier, model))
    texts = dict(re.findall(r"^(red|green|blue) (.*?)(?=\n(?:green|blue) |\Z)", shown, re.MULTILINE | re.DOTALL))
    assert list(texts) == ["red", "green", "blue"]
    if model == MOCK:
        assert texts == {colour: " ".join(f"What is {colour}?".split() * 6).rsplit(" ", 2)[0] for colour in texts}
    assert all(len(text) > 20 for text in texts.values())
