"""Texts as words, the same for both databases: what is searched for and what is searched in. Touches no database.

Compatibility forms, case and accents don't count. Chinese and Japanese, which have no blanks, are words of one
character each, and several of them in a row a phrase.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_CHARS = 100_000
"""Of one text; what comes after is not found. PostgreSQL refuses an entry of over a megabyte."""
MAX_TERMS = 10
MAX_ASKED_CHARS = 200

WORD = re.compile(r"[^\W_]+")
_ALONE = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class Term:
    """A word, or words in a row; of the last the beginning is enough where `is_prefix`."""

    words: tuple[str, ...]
    is_prefix: bool = False

    def find(self, folded: str) -> int:
        """Where it is in one folded word of a text; -1 if it isn't."""
        wanted = "".join(self.words)
        if _ALONE.search(wanted):
            return folded.find(wanted)
        return 0 if folded == wanted or (self.is_prefix and folded.startswith(wanted)) else -1


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", "".join(char for char in plain if unicodedata.category(char) != "Mn"))


def normalised(text: str) -> str:
    """All words of a text with a blank between them."""
    return " ".join(word for run in WORD.findall(fold(text[:MAX_CHARS])) for word in _split(run))


def terms(asked: str) -> list[Term]:
    """What a person looks for. The last word may still be in the making: what begins with it is found too."""
    runs = WORD.findall(fold(asked[:MAX_ASKED_CHARS]))[:MAX_TERMS]
    return [Term(tuple(_split(run)), number == len(runs)) for number, run in enumerate(runs, start=1)]


def _split(run: str) -> list[str]:
    return [run] if run.isascii() else _ALONE.sub(r" \g<0> ", run).split()


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    is_hit: bool


def excerpt(text: str, wanted: Sequence[Term], length: int = 200) -> list[Piece]:
    """The part of a text around the first hit, in pieces; its beginning where the words stand in no single place."""
    text = " ".join(text[:MAX_CHARS].split())
    hits = _hits(text, wanted)
    first = next(hits, None)
    start = max(0, first[0] - length // 3) if first else 0
    if start:
        start = text.find(" ", start, first[0] if first else None) + 1 or start
    end = min(len(text), start + length)
    pieces = [Piece("…", False)] if start else []
    while first and first[1] <= end:
        pieces += [Piece(text[start : first[0]], False), Piece(text[slice(*first)], True)]
        start, first = first[1], next(hits, None)
    pieces.append(Piece(text[start:end] + ("…" if end < len(text) else ""), False))
    return [piece for piece in pieces if piece.text]


def _hits(text: str, wanted: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Beginning and end of each hit, in order."""
    for found in re.finditer(r"[^\W_][^\W_\u0300-\u036f]*(?:[\u0300-\u036f]+[^\W_]*)*", text):
        folded = fold(found.group())
        places = [(at, len("".join(term.words))) for term in wanted if (at := term.find(folded)) >= 0]
        if not places:
            continue
        at, length = min(places)
        # Where folding changed the length, or for a word with blanks around it, the whole word.
        if len(folded) == len(found.group()) and _ALONE.search(folded):
            yield found.start() + at, found.start() + at + length
        else:
            yield found.span()
