"""A transformers tokenizer as the engine's text side: prompts in, whole characters out. Knows no model."""

import codecs
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from generation.engine.detokenizer import TokenStream
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
        self._bytes = _bytes_of(self._tokenizer)
        eos_id = tokenizer.eos_token_id
        self.eos_ids = frozenset() if eos_id is None else frozenset([eos_id])

    def encode(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self._prompts.encode(messages)

    def stream(self, prompt_ids: Sequence[int]) -> TokenStream:
        # Where an assistant's text is continued, the first word's space must stay; at the start of a text some
        # decoders strip it. After a control token or a line break it is the start of one.
        context = list(prompt_ids[-_CONTEXT_IDS:])
        continues = bool(self._tokenizer.decode(context[-1:], skip_special_tokens=True).strip())
        if self._bytes is not None:
            return _ByteStream(self._bytes, at_start=not continues)
        return _PieceStream(self._tokenizer, context if continues else [])


class _ByteStream:
    """Text of tokens that stand for bytes. Only the one to three bytes of an unfinished character are held."""

    def __init__(self, token_bytes: "_TokenBytes", *, at_start: bool) -> None:
        self._bytes = token_bytes
        self._at_start = at_start
        # Bytes that no character can have become U+FFFD, as in a decode of the whole.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def step(self, token_id: int) -> str:
        if token_id in self._bytes.control_ids:
            return ""
        raw = self._bytes.of(token_id, at_start=self._at_start)
        self._at_start = False  # a first piece that is stripped to nothing was the start all the same
        return self._decoder.decode(raw)

    def finish(self) -> str:
        return ""


class _PieceStream:
    """Text of tokens that stand for pieces of it, by tokenizers' DecodeStream."""

    def __init__(self, tokenizer: Tokenizer, context: list[int]) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(ids=context, skip_special_tokens=True)
        self._pending: list[int] = []

    def step(self, token_id: int) -> str:
        text: str | None = self._stream.step(self._tokenizer, token_id)
        if text is None:
            self._pending.append(token_id)
            return ""
        self._pending.clear()
        return text

    def finish(self) -> str:
        """DecodeStream holds back whatever ends in U+FFFD; here no token is half a character."""
        pending, self._pending = self._pending, []
        text: str = self._tokenizer.decode(pending, skip_special_tokens=True)
        return text


class _TokenBytes(ABC):
    """The bytes that each id stands for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.control_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._known: dict[tuple[int, bool], bytes] = {}

    def of(self, token_id: int, *, at_start: bool) -> bytes:
        raw = self._known.get((token_id, at_start))
        if raw is None:
            token: str | None = self._tokenizer.id_to_token(token_id)  # None: more embeddings than tokens
            raw = self._known[token_id, at_start] = b"" if token is None else self._of(token, token_id, at_start)
        return raw

    @abstractmethod
    def _of(self, token: str, token_id: int, at_start: bool) -> bytes: ...


class _ByteLevel(_TokenBytes):
    """GPT-2's printable stand-ins for bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        stand_ins = [*printable, *range(256, 256 + len(others))]
        self._alphabet = {chr(code): byte for code, byte in zip(stand_ins, printable + others, strict=True)}

    def _of(self, token: str, token_id: int, at_start: bool) -> bytes:
        if all(character in self._alphabet for character in token):
            return bytes(self._alphabet[character] for character in token)
        return token.encode()


class _ByteFallback(_TokenBytes):
    """SentencePiece's pieces, and ``<0xE2>`` for bytes of characters that no piece has.

    DecodeStream raises an error at bytes that no character can have, and would fail the reply.
    """

    def __init__(self, tokenizer: Tokenizer, letter_id: int) -> None:
        super().__init__(tokenizer)
        self._letter_id = letter_id  # of one byte, to put before what doesn't begin a text

    def _of(self, token: str, token_id: int, at_start: bool) -> bytes:
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        ids = [token_id] if at_start else [self._letter_id, token_id]
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text[not at_start :].encode()


def _bytes_of(tokenizer: Tokenizer) -> _TokenBytes | None:
    """By the kind of the tokenizer's decoder; None where its tokens are no bytes."""
    decoder = json.loads(tokenizer.to_str())["decoder"] or {}
    kinds = [each["type"] for each in decoder.get("decoders", [decoder]) if each]
    if kinds == ["ByteLevel"]:
        return _ByteLevel(tokenizer)
    letter_id = tokenizer.token_to_id("<0x41>")
    return _ByteFallback(tokenizer, letter_id) if "ByteFallback" in kinds and letter_id is not None else None
