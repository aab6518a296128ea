"""Sampled ids to shown text: whole characters, no part of a stop string, nothing lost."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from generation.engine.detokenizer import Detokenizer, StopStrings
from generation.engine.tokenizer import ChatTokenizer
from tests.engine import tiny


def pieces(ids: list[int], stop: tuple[str, ...] = (), prompt: tuple[int, ...] = (tiny.END,)) -> list[str]:
    """What each id releases, the end's rest with the last."""
    detokenizer = Detokenizer(ChatTokenizer(tiny.tokenizer()).stream(prompt), stop)
    released = []
    for token_id in ids:
        text, stopped = detokenizer.push(token_id)
        released.append(text)
        if stopped:
            return released
    released[-1] += detokenizer.finish()[0]
    return released


@pytest.mark.parametrize("text", ["fire 🔥 and 漢字", "👩‍👩‍👧", "naïve café", " leading", "    .  ': ' ,\n\tx = 1"])
def test_it_never_shows_half_a_character(text: str) -> None:
    """Emoji and CJK were shown as replacement marks (antonellof/ferrox#124, turboderp-org/exllamav3#171)."""
    released = pieces(tiny.byte_ids(text))
    assert "".join(released) == text
    assert not any("\ufffd" in piece for piece in released)


def test_it_drops_a_character_that_the_end_cuts() -> None:
    ids = tiny.byte_ids("ab🔥")
    for cut in (1, 2, 3):
        assert "".join(pieces(ids[:-cut])) == "ab"


def test_it_shows_a_replacement_character_that_the_model_meant() -> None:
    for text in ("a\ufffdb", "a\ufffd", "\ufffd\ufffd"):
        assert "".join(pieces(tiny.byte_ids(text))) == text
    assert "".join(pieces(tiny.byte_ids("a\ufffd🔥")[:-1])) == "a\ufffd"


def test_it_shows_what_a_whole_decode_shows() -> None:
    """Punctuation or a space got lost only while streaming (huggingface/transformers#32575)."""
    rng = random.Random(5)
    tokenizer = tiny.tokenizer()
    words = ["    .", "': '", " ,", "def f(x):\n    return x", "漢字", "🔥", " User", "café", "…"]
    for _ in range(50):
        text = "".join(rng.choices(words, k=12))
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert "".join(pieces(ids)) == text == tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    vocab = {"<unk>": 0, "<s>": 1, "▁Hello": 2, "▁world": 3, "▁": 4, "!": 5, "</s>": 6}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    raw.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def test_it_keeps_the_spaces_between_sentencepiece_words() -> None:
    """Words were glued together (huggingface/transformers#22710, hyperonym/basaran#197)."""
    codec = ChatTokenizer(metaspace_tokenizer())
    stream = codec.stream([1])
    assert [stream.step(token_id) for token_id in (2, 3, 5)] == ["Hello", " world", "!"]


def test_it_keeps_the_space_where_it_continues_a_text() -> None:
    stream = ChatTokenizer(metaspace_tokenizer()).stream([1, 2])
    assert [stream.step(token_id) for token_id in (3, 5)] == [" world", "!"]


@cache
def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """SentencePiece's way: pieces, and bytes of characters that no piece has."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in [*(f"<0x{byte:02X}>" for byte in range(256)), "▁Hello", "▁world", "▁", "▁▁", "!", "漢"]:
        vocab[piece] = len(vocab)
    raw = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    raw.decoder = decoders.Sequence(steps)
    raw.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def fallback_ids(*parts: str) -> list[int]:
    """A piece's id, or those of the bytes of what is no piece."""
    tokenizer = byte_fallback_tokenizer()
    pieces = tokenizer.get_vocab()
    return [token_id for part in parts for token_id in ([pieces[part]] if part in pieces else _bytes(pieces, part))]


def _bytes(pieces: dict[str, int], text: str) -> list[int]:
    return [pieces[f"<0x{byte:02X}>"] for byte in text.encode()]


def streamed(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> list[str]:
    stream = ChatTokenizer(tokenizer).stream([1])
    released = [stream.step(token_id) for token_id in ids]
    released[-1] += stream.finish()
    return released


def test_it_joins_bytes_of_characters_that_no_piece_has() -> None:
    parts = ["▁Hello", "🔥", "▁world", "é", "漢", "▁", "👩‍👩‍👧", "\n", "▁▁", "!"]
    rng = random.Random(7)
    for _ in range(200):
        ids = fallback_ids(*rng.choices(parts, k=rng.randint(1, 12)))
        released = streamed(byte_fallback_tokenizer(), ids)
        assert "".join(released) == byte_fallback_tokenizer().decode(ids, clean_up_tokenization_spaces=False)
        assert not any("\ufffd" in piece for piece in released)


def test_it_goes_on_after_bytes_that_no_character_can_have() -> None:
    """The stream of tokenizers raised "Invalid prefix encountered" there, and the reply failed."""
    rng = random.Random(9)
    for _ in range(300):
        ids = [rng.randrange(3, len(byte_fallback_tokenizer().get_vocab())) for _ in range(rng.randint(1, 12))]
        ids = [*ids, *fallback_ids("\n", "▁Hello", "🔥")]
        assert "".join(streamed(byte_fallback_tokenizer(), ids)).endswith("\n Hello🔥")
    bad = tiny.byte_ids("é")[:1] * 50
    assert pieces(bad) == ["", *["\ufffd"] * 49]


@pytest.mark.parametrize(
    "text", ["a" * 300, "https://example.org/" + "path/" * 40, "ภาษาไทยไม่มีช่องว่าง" * 8, "漢字かな" * 20]
)
def test_it_shows_text_without_spaces_as_it_comes(text: str) -> None:
    """Long text without spaces arrived in one lump (huggingface/transformers#28849)."""
    ids = tiny.tokenizer().encode(text, add_special_tokens=False)
    held = 0
    for piece in pieces(ids):
        held = 0 if piece else held + 1
        assert held <= 3
    assert "".join(pieces(ids)) == text


@settings(deadline=None)
@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=3), max_size=3), st.data())
def test_it_shows_the_text_up_to_the_first_stop_string_wherever_it_is_cut(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    ids = tiny.byte_ids(text)
    ids = ids[: data.draw(st.integers(0, len(ids)))]
    whole = bytes(text.encode()[: len(ids)]).decode(errors="ignore")
    expected = whole
    if ends := [whole.find(each) + len(each) for each in stop if each in whole]:
        # The first that is complete; of those that one character completes, the one that began earliest.
        complete = whole[: min(ends)]
        expected = complete[: min(complete.find(each) for each in stop if each in complete)]
    assert ("".join(pieces(ids, tuple(stop))) if ids else "") == expected


def test_it_never_shows_a_part_of_a_stop_string() -> None:
    """The first half of a stop string reached the user (vllm-project/vllm#3574, SharpAI/SwiftLM#126)."""
    stop = StopStrings(("\nUser:",))
    assert stop.push("Hi\nUser") == ("Hi", False)
    assert stop.push(":") == ("", True)


def test_it_shows_a_false_beginning_of_a_stop_string_in_full() -> None:
    stop = StopStrings(("\nUser:",))
    assert stop.push("\nUs") == ("", False)
    assert stop.push("age") == ("\nUsage", False)
    assert "".join(pieces(tiny.byte_ids("x\nUsag"), ("\nUser:",))) == "x\nUsag"
    assert "".join(pieces(tiny.byte_ids("x\nUs"), ("\nUser:",))) == "x\nUs"


def test_it_cuts_inside_one_token_at_the_right_character() -> None:
    stop = StopStrings(("END", "ND!"))
    assert stop.push("the END! more") == ("the ", True)
    overlapping = StopStrings(("aab",))
    assert [overlapping.push(text) for text in ("a", "a", "a", "b")] == [
        ("", False),
        ("", False),
        ("a", False),
        ("", True),
    ]
