"""The last word on what HTML leaves the renderer: a list of what is allowed, everything else is dropped.

The parser already shows raw HTML as text. This stands behind it, so that a fault in the parser, the
highlighter or the formula converter still cannot reach a page.
"""

import re

import nh3
from pygments.token import STANDARD_TYPES


def _names(text: str) -> set[str]:
    return set(text.split())


_HTML_TAGS = _names(
    """p br hr h1 h2 h3 h4 h5 h6 strong em s del code pre blockquote ul ol li
    table thead tbody tr th td a div span button"""
)
_MATH_TAGS = _names(
    """math mrow mi mn mo ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mtable
    mtr mtd mstyle mpadded mphantom menclose mmultiscripts mprescripts none merror"""
)
_MATH_ATTRIBUTES = _names(
    """display displaystyle mathvariant stretchy fence form separator accent accentunder movablelimits
    symmetric largeop lspace rspace minsize maxsize columnalign rowalign columnspacing rowspacing columnlines
    rowlines frame linethickness scriptlevel width height depth voffset notation mathcolor mathbackground
    mathsize bevelled numalign denomalign"""
)
_ALIGNED = {"ta-left", "ta-right", "ta-center"}
_TEXT_ALIGN = re.compile(r' style="text-align:(left|right|center)"')

_cleaner = nh3.Cleaner(
    tags=_HTML_TAGS | _MATH_TAGS,
    clean_content_tags={"script", "style"},
    attributes={
        "a": {"href", "title"},
        "ol": {"start"},
        **{tag: set(_MATH_ATTRIBUTES) for tag in _MATH_TAGS},
        "math": _MATH_ATTRIBUTES | {"tabindex"},
        "pre": {"tabindex"},
        "div": {"tabindex"},
    },
    allowed_classes={
        "div": {"code", "bar", "table"},
        "button": {"copy"},
        "code": {"formula"},
        "span": {"lang"} | {name for name in STANDARD_TYPES.values() if name},
        "th": _ALIGNED,
        "td": _ALIGNED,
    },
    set_tag_attribute_values={"button": {"type": "button"}, "a": {"target": "_blank"}},
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
    link_rel="noopener noreferrer nofollow ugc",
    strip_comments=True,
    generic_attribute_prefixes=set(),
)


def clean(html: str) -> str:
    """`html` with nothing in it that a script, a style or a foreign address could come from."""
    # The page's policy allows no inline style: a column's alignment becomes a class.
    cleaned: str = _cleaner.clean(_TEXT_ALIGN.sub(r' class="ta-\1"', html))
    return cleaned
