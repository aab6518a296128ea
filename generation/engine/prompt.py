"""Conversations to prompt ids, by the model's own chat template. Knows a tokenizer; neither model nor
sampling.

What people type never becomes a control token: text that would is encoded as the characters it consists of. A
template that refuses a conversation is asked again with a simpler form of it.
"""

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer

from generation.engine.errors import PromptError
from generation.engine.history import simpler_forms

_ROLES = ("system", "user", "assistant")

# For models without a chat template.
_PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

# Noncharacters: Unicode keeps them out of text. One that no message holds marks typed characters.
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]

_LONGEST_REFUSAL = 160


class PromptEncoder:
    """Shared by threads: its tokenizers are its own, and nothing in them changes after construction."""

    def __init__(self, tokenizer: Any) -> None:
        self._template = tokenizer  # transformers' tokenizer, for rendering only
        self._chat_template = tokenizer.chat_template or _PLAIN_TEMPLATE
        # Truncation and padding are state of the Rust object that transformers changes between calls, and a
        # call that meets such a change in another thread raises "Already borrowed": hence copies of our own.
        self._tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = self._tokenizer.get_added_tokens_decoder()
        self._control_ids = frozenset(added)
        self._control_tokens = sorted((token.content for token in added.values()), key=len, reverse=True)
        self._plain = Tokenizer.from_str(_without_added_tokens(self._tokenizer.to_str()))
        self._bos_id = _automatic_bos(self._tokenizer, tokenizer.bos_token_id)

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        _check(messages)
        accepted, rendered = self._render(messages)
        if any(self._holds_control_tokens(message["content"]) for message in accepted):
            ids = self._encode_guarded(accepted)
        else:
            ids = self._tokenizer.encode(rendered, add_special_tokens=False).ids
        return self._with_one_bos(ids)

    def _holds_control_tokens(self, content: str) -> bool:
        # The tokenizer itself decides, since some of its tokens match only after normalisation.
        ids = self._tokenizer.encode(content, add_special_tokens=False).ids
        return not self._control_ids.isdisjoint(ids)

    def _encode_guarded(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Encode with a mark after every typed character, so that template and typed text stay apart."""
        typed = "".join(message["content"] for message in messages)
        mark = next((mark for mark in _MARKS if mark not in typed), None)
        if mark is None:
            raise PromptError("the prompt holds characters that are not text")
        marked = [
            {**message, "content": "".join(character + mark for character in message["content"])}
            for message in messages
        ]
        ids: list[int] = []
        for part in re.split(f"((?:.{mark})+)", self._apply_template(marked), flags=re.DOTALL):
            if mark in part:
                ids += self._encode_typed(part.replace(mark, ""))
            elif part:
                ids += self._tokenizer.encode(part, add_special_tokens=False).ids
        return ids

    def _encode_typed(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        if self._control_ids.isdisjoint(ids):
            return ids
        # Some vocabularies hold their control tokens as ordinary pieces too. No single character is one.
        return [
            token_id
            for character in text
            for token_id in self._plain.encode(character, add_special_tokens=False).ids
            if token_id not in self._control_ids
        ]

    def _render(self, messages: Sequence[dict[str, str]]) -> tuple[Sequence[dict[str, str]], str]:
        """The messages in the first form that the template takes, and what it makes of them."""
        try:
            return messages, self._apply_template(messages)
        except Exception as error:  # templates raise what their authors like, jinja's errors above all
            for form in simpler_forms(messages):
                with contextlib.suppress(Exception):
                    return form, self._apply_template(form)
            raise PromptError(_refusal(error)) from error

    def _apply_template(self, messages: Sequence[dict[str, str]]) -> str:
        open_turn = messages[-1]["role"] == "assistant"
        if open_turn and not messages[-1]["content"].strip():
            messages, open_turn = messages[:-1], False
        rendered: str = self._template.apply_chat_template(
            list(messages),
            chat_template=self._chat_template,
            tokenize=False,
            add_generation_prompt=not open_turn,
            continue_final_message=open_turn,
        )
        return rendered

    def _with_one_bos(self, ids: list[int]) -> list[int]:
        """Templates write the BOS or leave it to the tokenizer; whichever it was, there is one."""
        bos_id = self._bos_id
        if bos_id is None:
            return ids
        start = 0
        while start < len(ids) and ids[start] == bos_id:
            start += 1
        return [bos_id, *ids[start:]]


def _check(messages: Sequence[dict[str, str]]) -> None:
    if not messages:
        raise PromptError("the prompt is empty")
    for message in messages:
        if message.get("role") not in _ROLES or not isinstance(message.get("content"), str):
            raise PromptError(f"a message needs text and one of the roles {', '.join(_ROLES)}")
        if any("\ud800" <= character <= "\udfff" for character in message["content"]):
            raise PromptError("the prompt holds characters that are not text")
    if not any(message["role"] == "user" and message["content"].strip() for message in messages):
        raise PromptError("the prompt is empty")


def _refusal(error: Exception) -> str:
    """What people may read: a template's own words, if it refused by words; never its code."""
    if type(error) is not TemplateError:
        return "this model's chat template cannot take this conversation"
    words = " ".join(str(error).split())[:_LONGEST_REFUSAL]
    return f"this model's chat template refuses the conversation: {words}"


def _without_added_tokens(tokenizer_json: str) -> str:
    description = json.loads(tokenizer_json)
    description["added_tokens"] = []
    description["post_processor"] = None  # it may name tokens that are gone
    return json.dumps(description)


def _automatic_bos(tokenizer: Tokenizer, bos_id: int | None) -> int | None:
    """The BOS id, if this tokenizer begins texts with it of its own accord."""
    ids = tokenizer.encode("a").ids
    return bos_id if bos_id is not None and ids and ids[0] == bos_id else None
