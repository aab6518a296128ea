"""Formulas: TeX to MathML, and the rules that find `\\(…\\)` and `\\[…\\]` (dollar signs: the plugin)."""

import functools
import html
from xml.etree.ElementTree import tostring

from latex2mathml.converter import convert_to_element
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MAX_FORMULA = 4_000
MAX_DISPLAY_LINES = 60


@functools.lru_cache(2048)
def mathml(source: str, display: bool) -> str:
    """A formula as MathML, or its source as code if it cannot be read.

    The library's own `convert()` un-escapes what it serialised, so that `\\text{<img onerror=…>}` becomes an
    element. Here each text of the tree is un-escaped instead, and serialising escapes it again.
    """
    shown = f'<code class="formula">{html.escape(source)}</code>'
    if len(source) > MAX_FORMULA:
        return shown
    try:
        root = convert_to_element(source, display="block" if display else "inline")
        for element in root.iter():
            element.text = element.text and html.unescape(element.text)
            element.tail = element.tail and html.unescape(element.tail)
            for name, value in element.attrib.items():
                element.set(name, html.unescape(value))
        if display:
            root.set("tabindex", "0")
        return tostring(root, encoding="unicode")
    except Exception:  # a formula is people's or a model's text: the library answers odd ones with any exception
        return shown


def tex_inline(state: StateInline, silent: bool) -> bool:
    """`\\( … \\)` and, inside a line, `\\[ … \\]`. Linear: it remembers that no closing one follows."""
    start, source = state.pos, state.src
    if source[start] != "\\" or start + 1 >= len(source) or source[start + 1] not in "([":
        return False
    closing, missing = ("\\)", -1) if source[start + 1] == "(" else ("\\]", -2)
    if missing in state.cache:
        return False
    end = source.find(closing, start + 2, state.posMax)
    if end < 0:
        state.cache[missing] = 1
        return False
    content = source[start + 2 : end]
    if not content.strip():
        return False
    if not silent:
        token = state.push("math_inline" if closing == "\\)" else "math_inline_double", "math", 0)
        token.content = content
    state.pos = end + 2
    return True


def tex_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines from one that begins with `\\[` to one that ends with `\\]`, without a blank one between."""
    if state.is_code_block(start):
        return False
    begin = state.bMarks[start] + state.tShift[start]
    if state.src[begin : begin + 2] != "\\[":
        return False
    for line in range(start, min(end, start + MAX_DISPLAY_LINES)):
        if state.isEmpty(line) or (line > start and state.sCount[line] < state.blkIndent):
            return False
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()
        if text.endswith("\\]") and (line > start or len(text) > 3):
            if silent:
                return True
            body = state.getLines(start, line + 1, state.sCount[start], False).strip()
            token = state.push("math_block", "math", 0)
            token.block = True
            token.content = body[2:-2]
            token.map = [start, line + 1]
            state.line = line + 1
            return True
    return False
