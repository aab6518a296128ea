"""Which messages of a conversation a model gets to read. Knows roles and lengths; neither models nor tokenizers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Message = dict[str, str]

# So much of the context is kept for a reply that may be longer.
_LEAST_SHARE_OF_THE_REPLY = 4


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    ids: list[int]
    num_dropped: int  # messages


def fit(
    encode: Callable[[list[Message]], list[int]], messages: Sequence[Message], context: int, max_new_tokens: int
) -> FittedPrompt:
    """The prompt without as many of the oldest turns as it takes to leave room for the reply.

    A turn is a user's message and what follows it. System messages and the last turn always stay, even where they
    leave less room, or none: then the engine refuses them. The room is ``max_new_tokens`` (0: no limit), at most a
    quarter of the context. Few of the possible prompts are encoded, most of them about as long as the context.
    """
    room = min(max_new_tokens or context, context // _LEAST_SHARE_OF_THE_REPLY)
    limit = context - max(room, 1)
    messages = list(messages)
    ids = encode(messages)
    starts = [index for index, message in enumerate(messages) if message["role"] == "user"]
    if len(ids) <= limit or len(starts) < 2:
        return FittedPrompt(ids, 0)
    best = _without(messages, starts[-1])
    best_ids = encode(best)
    low, high = 1, len(starts) - 1  # turns to drop
    probe, step = _guess(messages, starts, limit / len(ids)), 1
    while low < high:
        num_turns = probe if low <= probe < high else (low + high) // 2
        kept = _without(messages, starts[num_turns])
        kept_ids = encode(kept)
        if len(kept_ids) <= limit:
            best, best_ids = kept, kept_ids
            high, probe = num_turns, num_turns - step
        else:
            low, probe = num_turns + 1, num_turns + step
        step *= 2
    return FittedPrompt(best_ids, len(messages) - len(best))


def _without(messages: list[Message], start: int) -> list[Message]:
    return [message for message in messages[:start] if message["role"] == "system"] + messages[start:]


def _guess(messages: list[Message], starts: list[int], share: float) -> int:
    """How many turns to drop, if tokens were spread evenly over the characters."""
    lengths = [len(message["content"]) for message in messages]
    too_many = sum(lengths) * (1 - share)
    return next((turns for turns, start in enumerate(starts) if sum(lengths[:start]) >= too_many), len(starts) - 1)


def simpler_forms(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The same conversation for templates that refuse it: turns of one role in a row joined by a blank line, the
    system's text put before the first user message, both.
    """
    given = list(messages)
    joined = _joined(given)
    if joined != given:
        yield joined
    if any(message["role"] == "system" for message in given):
        told = _told_by_the_user(given)
        yield told
        if _joined(told) != told:
            yield _joined(told)


def _joined(messages: list[Message]) -> list[Message]:
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            message = {**message, "content": f"{turns.pop()['content']}\n\n{message['content']}"}
        turns.append(message)
    return turns


def _told_by_the_user(messages: list[Message]) -> list[Message]:
    system = [message["content"] for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    first = next(index for index, message in enumerate(others) if message["role"] == "user")
    others[first] = {**others[first], "content": "\n\n".join([*system, others[first]["content"]])}
    return others
