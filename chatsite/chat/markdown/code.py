"""Fenced and indented code as HTML: highlighting, the name of the language, a button to copy."""

import functools
import html
import re
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

MAX_HIGHLIGHTED = 50_000
"""Characters of a block above which it stays plain: a lexer may need seconds for more."""

MAX_HIGHLIGHTED_OPEN = 4_000
"""The same for a fence that still grows and is therefore rendered again and again."""

_LANGUAGE = re.compile(r"[a-z0-9+#._-]{1,30}")
_formatter = HtmlFormatter(nowrap=True)


@functools.lru_cache(256)
def _lexer(language: str) -> Lexer | None:
    try:
        lexer: Lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None
    return lexer


def _is_open(token: Token, body: str) -> bool:
    """Whether a fence has no closing line yet: its lines are then the opening one and the body's alone."""
    if token.type != "fence" or token.map is None:
        return False
    body_lines = body.count("\n") + (not body.endswith("\n") and body != "")
    return token.map[1] - token.map[0] < body_lines + 2


def render_code(token: Token, env: Mapping[str, Any]) -> str:
    """HTML of one code block; `env["growing"]` says that more of the text may follow.

    What may be wider than the page can be in focus, here as with tables and formulas, to be scrolled with keys.
    """
    body = token.content
    words = token.info.split() if token.type == "fence" else []
    language = words[0].lower() if words and _LANGUAGE.fullmatch(words[0].lower()) else ""
    limit = MAX_HIGHLIGHTED_OPEN if env.get("growing") and _is_open(token, body) else MAX_HIGHLIGHTED
    lexer = _lexer(language) if language and len(body) <= limit else None
    code = highlight(body, lexer, _formatter) if lexer else html.escape(body)
    copy = html.escape(gettext("Copy"))
    return (
        f'<div class="code"><div class="bar"><span class="lang">{html.escape(language)}</span>'
        f'<button type="button" class="copy">{copy}</button></div><pre tabindex="0"><code>{code}</code></pre></div>\n'
    )
