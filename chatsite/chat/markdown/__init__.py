"""Markdown of replies to safe HTML, as a whole or block by block while it streams.

Knows text and HTML only: no rows, no sockets. A page shows the blocks one below the other, so a stream of
changes to numbered blocks ends in the same document as a render of the whole text.
"""

from chatsite.chat.markdown.parser import render
from chatsite.chat.markdown.stream import StreamRenderer

__all__ = ["StreamRenderer", "render"]
