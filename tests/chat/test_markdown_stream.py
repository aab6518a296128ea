"""A growing text ends as a render of the whole, and its end costs as much per character as its start."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatsite.chat.markdown import StreamRenderer, render

PIECES = [
    "# Title\n",
    "A paragraph with *emphasis*, **strength** and `code`.\n",
    "\n",
    "\n\n",
    "- one\n- two\n  - nested\n\n  more\n",
    "1. first\n\n2. second\n",
    "> quoted\nlazily\n",
    "```python\ndef f(x):\n\n    return x < 3\n```\n",
    "~~~\nno language\n~~~\n",
    "```\nnever closed\n",
    "    indented code\n",
    "| a | b |\n|:--|--:|\n| 1 | 2 |\n",
    "Setext\n===\n",
    "---\n",
    "See [the docs][docs] and [other].\n",
    "[docs]: https://example.org/docs\n",
    '[other]: https://example.org/other "a\ntitle"\n',
    "[long]:\nhttps://example.org\n'title\nover lines'\n",
    "$$\n\\frac{a}{b}\n",
    "$$\n",
    "$$ x^2\n\n+ y $$\n",
    "\\[\na + b\n",
    "\\]\n",
    "inline $a_1$ and \\(b\\) and \\[c\\].\n",
    "text without an end",
    "a line\r\nand another\r\n",
    "\r",
    "日本語のテキスト、絵文字 👩‍💻。\n",
    "<div>\n<b>raw</b>\n</div>\n",
    "***\n",
    "\ttab\n",
    "* a\n* b\n\n\n* c\n",
    "![image](https://example.org/x.png)\n",
]
PLAIN_PIECES = [piece for piece in PIECES if "[" not in piece and "\r" not in piece]
documents = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
plain_documents = st.lists(st.sampled_from(PLAIN_PIECES), max_size=14).map("".join)


def streamed(text: str, cuts: random.Random) -> StreamRenderer:
    renderer = StreamRenderer()
    shown: list[str] = []
    start = 0
    while start < len(text):
        size = cuts.choice([1, 1, 2, 3, 7, 20, 60])
        renderer.feed(text[start : start + size])
        start += size
        if cuts.random() < 0.7:
            apply(shown, *renderer.update())
            assert shown == renderer.blocks()
    apply(shown, *renderer.update())
    return renderer


def apply(shown: list[str], num_blocks: int, changes: list[tuple[int, str]]) -> None:
    """What a page does with an update."""
    for index, html in changes:
        if index == len(shown):
            shown.append(html)
        else:
            shown[index] = html
    del shown[num_blocks:]


@given(documents, st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_it_ends_as_a_render_of_the_whole_text_wherever_it_was_cut(text: str, seed: int) -> None:
    renderer = streamed(text, random.Random(seed))
    shown = renderer.blocks()
    apply(shown, *renderer.update(final=True))
    assert shown == renderer.blocks() == render(text)


@given(plain_documents, st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_it_needs_no_repair_at_the_end_of_a_text_without_references(text: str, seed: int) -> None:
    text += "\n\nThe end.\n\n"
    assert streamed(text, random.Random(seed)).blocks() == render(text)


@pytest.mark.parametrize("text", ["one\r\n\r\ntwo", "one\r\rtwo", "one\r"])
def test_it_reads_every_kind_of_line_end_also_when_it_is_cut_in_two(text: str) -> None:
    renderer = StreamRenderer()
    for character in text:
        renderer.feed(character)
        renderer.update()
    renderer.update(final=True)
    assert renderer.blocks() == render(text)


def test_it_continues_a_reply_that_has_earlier_parts() -> None:
    renderer = StreamRenderer("# Title\n\n- one\n- t")
    renderer.feed("wo\n- three\n")
    num_blocks, changes = renderer.update(final=True)
    assert [html for _, html in changes] == render("# Title\n\n- one\n- two\n- three\n")
    assert num_blocks == 2


def test_it_sends_only_what_changed() -> None:
    renderer = StreamRenderer()
    renderer.feed("first\n\nsecond")
    assert [index for index, _ in renderer.update()[1]] == [0, 1]
    renderer.feed(" more")
    assert renderer.update() == (2, [(1, "<p>second more</p>\n")])
    assert renderer.update() == (2, [])


def test_it_makes_links_of_earlier_brackets_when_their_definition_comes() -> None:
    renderer = StreamRenderer()
    renderer.feed("See [docs].\n\nMore.\n\n")
    renderer.update()
    renderer.feed("[docs]: https://example.org/\n\nThe end.\n\nx\n")
    assert 0 in [index for index, _ in renderer.update()[1]]
    assert 'href="https://example.org/"' in renderer.blocks()[0]


def test_it_costs_the_same_per_character_at_the_end_of_a_long_reply() -> None:
    """The page froze during long replies, parsed whole at each token (open-webui/open-webui#3620)."""
    paragraph = "Some words with `code` and *more*, as replies have them.\n\n- a\n- b\n\n```py\nx = 1\n```\n\n"
    renderer = StreamRenderer()
    costs = []
    for _ in range(4):
        before = renderer.num_parsed
        for _ in range(60):
            for start in range(0, len(paragraph), 5):
                renderer.feed(paragraph[start : start + 5])
                renderer.update()
        costs.append(renderer.num_parsed - before)
    assert max(costs) < 1.2 * min(costs)


def test_it_shows_a_giant_block_less_often_instead_of_at_any_price() -> None:
    renderer = StreamRenderer()
    renderer.feed("short")
    renderer.update()
    assert renderer.interval < 1
    renderer.feed("\n\n```\n" + "a line of code\n" * 20_000)
    renderer.update()
    assert renderer.interval > 5


def test_it_leaves_a_long_open_fence_plain_and_highlights_it_when_it_closes() -> None:
    renderer = StreamRenderer()
    renderer.feed("```python\n" + "x = 1\n" * 1_000)
    renderer.update()
    assert 'class="mi"' not in renderer.blocks()[0]
    renderer.feed("```\n")
    renderer.update()
    assert 'class="mi"' in renderer.blocks()[0]
