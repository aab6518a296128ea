"""A model without weights, for tests and for trying the rest: it repeats the last user message's words.

It passes the same scheduler, slots, stop strings and events as a real model; only this runner and codec
differ. Token i's id is i, counted on from the words of a trailing assistant message. A prompt id holds its
word, so that a prompt's ids alone say what to reply, and nothing is kept between prompts.
"""

from collections.abc import Sequence
from itertools import takewhile

from generation.engine.errors import PromptError
from generation.engine.scheduler import Plan

_ROLES = ("system", "user", "assistant")


class MockRunner:
    """ "Samples" the next count, at ``rate`` tokens per second and sequence."""

    vocab_size = None
    eos_ids: frozenset[int] = frozenset()
    keeps_prefixes = False
    device = dtype = ""

    def __init__(self, context: int, rate: float) -> None:
        self.context = context
        self.interval = 1.0 / rate

    def run(self, plan: Plan) -> list[int | Exception]:
        results: list[int | Exception] = []
        for segment in plan.sampling:
            sequence = segment.sequence
            offset = _num_said(sequence.ids[: sequence.num_prompt])
            results.append(offset + sequence.num_generated)
        return results

    def check(self) -> None:
        pass


class MockCodec:
    """Words in, words out."""

    eos_ids: frozenset[int] = frozenset()

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        ids = [
            _word_id(word, _ROLES.index(message["role"]), first=index == 0)
            for message in messages
            for index, word in enumerate(message["content"].split())
        ]
        if not _words_to_repeat(ids):
            raise PromptError("the prompt is empty")
        return ids

    def stream(self, prompt_ids: Sequence[int]) -> "MockStream":
        return MockStream(_words_to_repeat(prompt_ids))


class MockStream:
    def __init__(self, words: list[str]) -> None:
        self._words = words

    def step(self, token_id: int) -> str:
        word = self._words[token_id % len(self._words)]
        return f" {word}" if token_id else word

    def finish(self) -> str:
        return ""


def _word_id(word: str, role: int, *, first: bool) -> int:
    """The word's bytes as one number, the role and whether it begins a message in the lowest three bits."""
    return int.from_bytes(word.encode("utf-8", "surrogatepass")) << 3 | first << 2 | role


def _word(token_id: int) -> str:
    number = token_id >> 3
    return number.to_bytes((number.bit_length() + 7) // 8).decode("utf-8", "surrogatepass")


def _role(token_id: int) -> str:
    return _ROLES[token_id & 3]


def _num_said(prompt_ids: Sequence[int]) -> int:
    """How many words a trailing assistant message has said already."""
    return sum(1 for _ in takewhile(lambda token_id: _role(token_id) == "assistant", reversed(prompt_ids)))


def _words_to_repeat(prompt_ids: Sequence[int]) -> list[str]:
    """The last user message's words."""
    words: list[str] = []
    for token_id in reversed(prompt_ids):
        if _role(token_id) == "user":
            words.append(_word(token_id))
            if token_id & 4:
                break
    return words[::-1]
