"""A transformers tokenizer as the engine's text side: prompts in, whole characters out. Knows no model."""

import codecs
import json
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from generation.engine.errors import ModelRefused
from generation.engine.prompt import PromptEncoder

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")

# So many prompt ids are enough context for the first word after text that is continued.
_CONTEXT_IDS = 8


class ChatTokenizer:
    """Every method may be called from any thread."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelRefused(f"{type(tokenizer).__name__} is no fast tokenizer, and its text cannot be streamed")
        self._prompts = PromptEncoder(tokenizer)
        self._tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._bytes = _TokenBytes(self._tokenizer)
        eos_id = tokenizer.eos_token_id
        self.eos_ids = frozenset() if eos_id is None else frozenset([eos_id])

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self._prompts.encode(messages)

    def stream(self, prompt_ids: Sequence[int]) -> "ReplyStream":
        return ReplyStream(self._tokenizer, self._bytes, prompt_ids)


class ReplyStream:
    """tokenizers' DecodeStream, with the end that it lacks."""

    def __init__(self, tokenizer: Tokenizer, token_bytes: "_TokenBytes", prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._bytes = token_bytes
        # Where an assistant's text is continued, the decoder must know that this is not the start of a text:
        # it would strip the first word's space. After a control token or a line break it is the start of one.
        context = list(prompt_ids[-_CONTEXT_IDS:])
        ending = tokenizer.decode(context[-1:], skip_special_tokens=True)
        self._stream = DecodeStream(ids=context if ending.strip() else [], skip_special_tokens=True)
        self._pending: list[int] = []

    def step(self, token_id: int) -> str:
        text: str | None = self._stream.step(self._tokenizer, token_id)
        if text is None:
            self._pending.append(token_id)
            return ""
        self._pending.clear()
        return text

    def finish(self) -> str:
        """DecodeStream holds back whatever ends in U+FFFD, which may be half a character or that very one."""
        pending, self._pending = self._pending, []
        return self._bytes.text(pending)


class _TokenBytes:
    """The bytes that ids stand for, where their tokens are bytes at all."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        decoder = json.loads(tokenizer.to_str())["decoder"]
        self._alphabet = _byte_alphabet() if "ByteLevel" in json.dumps(decoder) else {}
        self._control_ids = frozenset(
            token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special
        )

    def text(self, ids: list[int]) -> str:
        """The whole characters of ``ids``; an unfinished one at the end is dropped."""
        raw = b"".join(self._of(token_id) for token_id in ids if token_id not in self._control_ids)
        return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(raw, final=False)

    def _of(self, token_id: int) -> bytes:
        token: str = self._tokenizer.id_to_token(token_id) or ""
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        if self._alphabet and all(character in self._alphabet for character in token):
            return bytes(self._alphabet[character] for character in token)
        text: str = self._tokenizer.decode([token_id])
        return text.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes, as character → byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = [*printable, *range(256, 256 + len(others))]
    return {chr(code): byte for code, byte in zip(stand_ins, printable + others, strict=True)}
