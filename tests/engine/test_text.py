"""Sampled ids to shown text: whole characters, no part of a stop string, nothing lost."""

import random

import pytest
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
