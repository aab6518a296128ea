"""What people say, and what must come back: computed from the prompt, outside of the product."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from tests.environment import ROOT

MODEL_PARAMS = {"temperature": 0}


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt. With `fails_with` its reply fails with that code after a beginning of `expected`.

    `idle_seconds`: so long its reader reads nothing at all.
    """

    text: str
    expected: str
    params: dict[str, Any] = field(default_factory=dict)
    fails_with: str = ""
    idle_seconds: float = 0.0


Script = list[Ask]
"""The prompts of one conversation, one after the other."""

Scripts = Callable[[random.Random], Script]


def nonced(num_words: int, *, also: str = "") -> str:
    """A prompt like no other, each word of which says whose it is."""
    nonce = uuid4().hex[:8]
    return " ".join([f"{nonce}.{word}" for word in range(num_words)] + [also] * bool(also))


def echoed(num_words: int) -> Ask:
    """A prompt that the model `mock` repeats once."""
    text = nonced(num_words)
    return Ask(text, text, {"max_new_tokens": num_words})


def words(chance: random.Random) -> Script:
    """A conversation with the model `mock`."""
    return [echoed(chance.randint(10, 80)) for _ in range(chance.randint(1, 3))]


_TOPICS = (
    "rain",
    "bread",
    "a lighthouse",
    "the moon",
    "old maps",
    "bees",
    "a violin",
    "glass",
    "salt",
    "winter",
    "clocks",
)
_QUESTIONS = ("Write two sentences about {}.", "What is {} good for?", "Tell a child about {}.", "List facts about {}.")
_FOLLOW_UPS = ("Say it in other words.", "Why?", "And what else?")


def questions(seed: int, num_conversations: int) -> list[Script]:
    """Conversations with the built-in model. Another process computes the replies: `tests.chaos.greedy`."""
    chance = random.Random(seed)
    asked = []
    for number in range(num_conversations):
        topic, question = _TOPICS[number % len(_TOPICS)], chance.choice(_QUESTIONS)
        prompts = [question.format(topic), *chance.sample(_FOLLOW_UPS, chance.randint(0, 1))]
        asked.append([[prompt, chance.randint(12, 40)] for prompt in prompts])
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.greedy"],
        cwd=ROOT,
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    scripts = []
    for prompts, replies in zip(asked, json.loads(done.stdout), strict=True):
        script = [
            Ask(prompt, reply, {**MODEL_PARAMS, "max_new_tokens": limit})
            for (prompt, limit), reply in zip(prompts, replies, strict=False)
        ]
        if script:
            scripts.append(script)
    return scripts


def model(seed: int, num_conversations: int = 16) -> Scripts:
    """Conversations drawn from such questions."""
    scripts = questions(seed, num_conversations)
    return lambda chance: chance.choice(scripts)
