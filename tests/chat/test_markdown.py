"""What replies may contain, and what never reaches a page."""

import re

import pytest

from chatsite.chat.markdown import StreamRenderer, render
from chatsite.chat.markdown.math import mathml

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<svg onload=alert(1)><circle/></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#10;script:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:x)",
    "[x](/admin/)",
    "[x](//evil.example/)",
    "![x](https://evil.example/pixel.png)",
    "![x](javascript:alert(1))",
    '!["onerror=alert(1)](x)',
    "[a]\n\n[a]: javascript:alert(1)",
    "<javascript:alert(1)>",
    '[x](https://a.example "\\" onmouseover=alert(1) ")',
    "```\n<img src=x onerror=alert(1)>\n```",
    "```html\n<script>alert(1)</script>\n```",
    '```"><img src=x onerror=alert(1)>\nx\n```',
    "    <img src=x onerror=alert(1)>",
    "`<img src=x onerror=alert(1)>`",
    "$\\text{<img src=x onerror=alert(1)>}$",
    "$$\\text{&lt;img src=x onerror=alert(1)&gt;}$$",
    "$\\href{javascript:alert(1)}{x}$",
    "$\\class{x}{\\style{color:red}{y}}$",
    "\\(\\text{</mtext></math><img src=x onerror=alert(1)>}\\)",
    '\\[\\color{red"onmouseover="alert(1)}{x}\\]',
    "|a|\n|-|\n|<img src=x onerror=alert(1)>|",
    "# <img src=x onerror=alert(1)>",
    "&lt;img src=x onerror=alert(1)&gt;",
    "<!-- --!><img src=x onerror=alert(1)> -->",
    "<style>body{display:none}</style>",
    "<form action=https://evil.example><button>Sign in</button></form>",
]

TAG = re.compile(r"<\s*/?\s*([a-zA-Z][\w-]*)((?:\"[^\"]*\"|'[^']*'|[^>\"'])*)>")
ALLOWED_TAGS = """
    p br hr h1 h2 h3 h4 h5 h6 strong em s del code pre blockquote ul ol li table thead tbody tr th td a div
    span button math mrow mi mn mo ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover
    mtable mtr mtd mstyle mpadded
"""


def assert_harmless(html: str) -> None:
    for tag, attributes in TAG.findall(html):
        assert tag.lower() in ALLOWED_TAGS.split(), html
        names = re.findall(r"([\w:-]+)\s*=\s*\"", attributes)
        assert not [name for name in names if name.lower().startswith("on") or name.lower() in ("style", "src", "id")]
        for address in re.findall(r"href=\"([^\"]*)\"", attributes):
            assert address.startswith(("https://", "http://", "mailto:")), html


@pytest.mark.parametrize("text", HOSTILE)
def test_it_lets_nothing_run_that_a_model_or_a_person_wrote(text: str) -> None:
    """Text of a model ran as HTML in the page (lm-sys/FastChat#88, OvidijusParsiunas/deep-chat#123)."""
    assert_harmless("".join(render(text)))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_it_lets_nothing_run_when_a_tag_arrives_in_pieces(size: int) -> None:
    """A tag split over two pieces of a stream slipped through (ant-design/pro-chat#322)."""
    for text in HOSTILE:
        renderer = StreamRenderer()
        for start in range(0, len(text), size):
            renderer.feed(text[start : start + size])
            for _, html in renderer.update()[1]:
                assert_harmless(html)
        renderer.update(final=True)
        assert renderer.blocks() == render(text)


def test_it_shows_raw_html_as_the_text_it_is() -> None:
    assert render("<b>bold</b>") == ["<p>&lt;b&gt;bold&lt;/b&gt;</p>\n"]


def test_it_shows_a_fence_without_a_language_as_text() -> None:
    (block,) = render("```\n<b>x</b>\n```")
    assert "&lt;b&gt;x&lt;/b&gt;" in block


def test_it_highlights_code_and_names_its_language() -> None:
    (block,) = render("```python\ndef f(): pass\n```")
    assert '<span class="lang">python</span>' in block
    assert '<span class="k">def</span>' in block
    assert '<button class="copy" type="button">Copy</button>' in block


def test_it_turns_an_image_into_a_link_so_that_reading_asks_no_foreign_server() -> None:
    (block,) = render("![a cat](https://example.org/cat.png)")
    assert "<img" not in block
    assert 'href="https://example.org/cat.png"' in block
    assert "a cat" in block


def test_it_opens_links_apart_and_without_a_way_back() -> None:
    (block,) = render("[x](https://example.org/)")
    assert 'target="_blank"' in block
    assert "noopener" in block


def test_it_aligns_columns_without_inline_styles() -> None:
    (block,) = render("|a|\n|-:|\n|1|")
    assert "style=" not in block
    assert 'class="ta-right"' in block


@pytest.mark.parametrize("text", ["$x^2$", "\\(x^2\\)", "$$x^2$$", "\\[x^2\\]", "\\[\nx^2\n\\]", "$$\nx^2\n$$"])
def test_it_writes_formulas_as_mathml(text: str) -> None:
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in "".join(render(text))


def test_it_leaves_prices_alone() -> None:
    assert render("It costs $5 or $10.") == ["<p>It costs $5 or $10.</p>\n"]


@pytest.mark.parametrize("source", ["\\frac{1}", "\\begin{array}", "}{", "\\left(", "x" * 5000, "{" * 3000])
def test_it_shows_the_source_of_a_formula_that_cannot_be_read(source: str) -> None:
    assert "<math" in mathml(source, True) or 'class="formula"' in mathml(source, True)
