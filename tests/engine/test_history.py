"""What a conversation loses when it outgrows the context, and the forms it takes for templates that refuse it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.engine.history import Message, fit, simpler_forms

SYSTEM = {"role": "system", "content": "be kind"}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


class Words:
    """Each word is a token, each message costs one more."""

    def __init__(self) -> None:
        self.num_encoded: list[int] = []

    def encode(self, messages: list[Message]) -> list[int]:
        ids = [hash(word) for message in messages for word in [message["role"], *message["content"].split()]]
        self.num_encoded.append(len(ids))
        return ids


def plainly_fitted(messages: list[Message], context: int, max_new_tokens: int) -> list[Message]:
    limit = context - max(1, min(max_new_tokens or context, context // 4))
    starts = [index for index, message in enumerate(messages) if message["role"] == "user"]
    kept = messages
    for start in starts[1:]:
        if len(Words().encode(kept)) <= limit:
            break
        kept = [message for message in messages[:start] if message["role"] == "system"] + messages[start:]
    return kept


TEXTS = st.integers(0, 30).map(lambda number: "word " * number)
TURNS = st.lists(
    st.builds(lambda asked, replies: [user(asked), *map(assistant, replies)], TEXTS, st.lists(TEXTS, max_size=2)),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(TURNS, st.booleans(), st.integers(2, 400), st.integers(0, 300))
def test_it_loses_as_few_of_the_oldest_turns_as_it_must(
    turns: list[list[Message]], with_system: bool, context: int, max_new_tokens: int
) -> None:
    messages = [SYSTEM] * with_system + [message for turn in turns for message in turn]
    expected = plainly_fitted(messages, context, max_new_tokens)
    fitted = fit(Words().encode, messages, context, max_new_tokens)
    assert fitted.ids == Words().encode(expected)
    assert fitted.num_dropped == len(messages) - len(expected)
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    assert expected[-len(messages[last:]) :] == messages[last:]


def test_it_encodes_a_thousand_turns_only_a_few_times() -> None:
    words = Words()
    messages = [message for number in range(1000) for message in (user("word " * (number % 40)), assistant("yes"))]
    fitted = fit(words.encode, messages, 400, 100)
    assert fitted.num_dropped > 1900 and 200 < len(fitted.ids) <= 300
    assert len(words.num_encoded) <= 14
    assert sum(words.num_encoded[1:]) < words.num_encoded[0]


def test_it_keeps_no_more_room_than_the_reply_may_take() -> None:
    messages = [user("a " * 40), assistant("b"), user("c " * 40)]
    assert fit(Words().encode, messages, 100, 15).num_dropped == 0
    assert fit(Words().encode, messages, 100, 17).num_dropped == 2
    assert fit(Words().encode, messages, 100, 0).num_dropped == 2


def test_it_keeps_a_last_turn_that_leaves_little_room_or_none() -> None:
    """A long history with a prompt that fits alone was refused (vllm-project/vllm#765, tabbyAPI#203)."""
    for length in (80, 99, 100, 1000):
        messages = [SYSTEM, user("a"), assistant("b"), user("c " * length)]
        fitted = fit(Words().encode, messages, 100, 50)
        assert fitted.ids == Words().encode([SYSTEM, messages[-1]])
        assert fitted.num_dropped == 2


@pytest.mark.parametrize(
    ("messages", "forms"),
    [
        ([user("a"), assistant("b"), user("c")], []),
        ([user("a"), user("b"), assistant("c")], [[user("a\n\nb"), assistant("c")]]),
        ([SYSTEM, user("a")], [[user("be kind\n\na")]]),
        (
            [SYSTEM, user("a"), user("b")],
            [[SYSTEM, user("a\n\nb")], [user("be kind\n\na"), user("b")], [user("be kind\n\na\n\nb")]],
        ),
    ],
)
def test_it_takes_simpler_forms_one_after_the_other(messages: list[Message], forms: list[list[Message]]) -> None:
    before = [dict(message) for message in messages]
    assert list(simpler_forms(messages)) == forms
    assert messages == before
