"""The Markdown that replies may use, and its render as top-level blocks.

CommonMark with tables, strikethrough and formulas. Raw HTML is text; an image is a link to it, so that
reading a reply never asks a foreign server for anything.
"""

import functools
import html
from collections.abc import MutableMapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from mdit_py_plugins.dollarmath import dollarmath_plugin

from chatsite.chat.markdown.code import render_code
from chatsite.chat.markdown.math import mathml, tex_block, tex_inline
from chatsite.chat.markdown.sanitizer import clean

Env = MutableMapping[str, Any]


def _code(r: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: Env) -> str:
    return render_code(tokens[index], env)


def _inline_math(r: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: Env) -> str:
    return mathml(tokens[index].content, False)


def _display_math(r: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: Env) -> str:
    return mathml(tokens[index].content, True)


def _image(r: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: Env) -> str:
    address = str(tokens[index].attrs.get("src", ""))
    text = tokens[index].content or address
    return f'<a href="{html.escape(address)}">{html.escape(text)}</a>'


def _table_open(r: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: Env) -> str:
    return '<div class="table" tabindex="0"><table>\n'


def _table_close(r: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: Env) -> str:
    return "</table></div>\n"


_RENDER_RULES = {
    "fence": _code,
    "code_block": _code,
    "math_inline": _inline_math,
    "math_inline_double": _display_math,
    "math_block": _display_math,
    "image": _image,
    "table_open": _table_open,
    "table_close": _table_close,
}


def _build() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": False})
    parser.enable(["table", "strikethrough"])
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    parser.inline.ruler.before("escape", "tex_inline", tex_inline)
    interrupts = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "tex_block", tex_block, {"alt": interrupts})
    for name, rule in _RENDER_RULES.items():
        parser.add_render_rule(name, rule)
    return parser


@functools.cache
def parser() -> MarkdownIt:
    """The whole parser; it keeps no state between calls."""
    return _build()


@functools.cache
def structure_parser() -> MarkdownIt:
    """The same for blocks only, without their inline text: enough to see where a block begins."""
    blocks_only = _build()
    blocks_only.core.ruler.enableOnly(["normalize", "block"])
    return blocks_only


def top_level(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each top-level block."""
    blocks: list[list[Token]] = []
    current: list[Token] = []
    for token in tokens:
        current.append(token)
        if token.level == 0 and token.nesting <= 0:
            blocks.append(current)
            current = []
    if current:
        blocks.append(current)
    return blocks


def render_block(tokens: Sequence[Token], env: Env) -> str:
    """Safe HTML of one top-level block, given the environment that its text was parsed with."""
    return clean(parser().renderer.render(tokens, parser().options, env))


def render(text: str) -> list[str]:
    """Safe HTML of a whole text, one string for each top-level block."""
    env: Env = {}
    return [render_block(block, env) for block in top_level(parser().parse(text, env))]
