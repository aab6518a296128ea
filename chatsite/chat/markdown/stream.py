"""Markdown that grows: closed blocks are rendered once, the open end again at each update.

The cost of an update depends on the length of the open block, not of the reply. Where a block ends is judged
on complete lines only, because half a line can still turn out to be anything. What CommonMark lets later text
change is kept open or repaired: reference definitions (they may come after their use), and display formulas
whose end has not come.
"""

import time

from markdown_it.token import Token

from chatsite.chat.markdown.parser import Env, parser, render, render_block, structure_parser, top_level

MIN_INTERVAL_SECONDS = 0.1
COST_FACTOR = 20
"""A giant open block is shown less often, not at any price: updates take at most a twentieth of the time."""
BYTES_PER_SECOND = 50_000

_FORMULA_BLOCKS = 20
_FORMULA_LINES = 64


class StreamRenderer:
    """The blocks of one growing text. Not thread-safe; one reader's use only.

    `prefix` is text that stands before what will be fed: a continued reply's earlier parts.
    """

    def __init__(self, prefix: str = "") -> None:
        self.interval = MIN_INTERVAL_SECONDS
        """Seconds to wait before the next update."""
        self.num_parsed = 0
        """Characters given to the parser so far: what the updates have cost."""
        self._source: list[str] = []
        self._html: list[str] = []
        self._num_closed = 0
        self._tail = ""  # source from the first open block on
        self._carriage_return = ""  # one that may be half of a line end
        self._new_line = False
        self._references: dict[str, object] = {}  # definitions in the closed blocks
        self._with_brackets: list[tuple[int, str]] = []  # (index, source) of closed blocks that may refer to one
        self._changed: set[int] = set()
        self.feed(prefix)

    def feed(self, text: str) -> None:
        """Add text; nothing is rendered before the next `update`."""
        text = self._carriage_return + text
        self._carriage_return = ""
        if text.endswith("\r"):
            text, self._carriage_return = text[:-1], "\r"
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        if text:
            self._new_line = self._new_line or "\n" in text
            self._source.append(text)
            self._tail += text

    def blocks(self) -> list[str]:
        """HTML of all blocks as of the last update."""
        return list(self._html)

    def update(self, final: bool = False) -> tuple[int, list[tuple[int, str]]]:
        """How many blocks there are now, and those that changed since the last update with their positions.

        `final` makes them those of one render of the whole text.
        """
        began = time.perf_counter()
        self._changed = set()
        num_blocks = self._reconcile() if final else self._advance()
        del self._html[num_blocks:]
        changes = [(index, self._html[index]) for index in sorted(self._changed) if index < num_blocks]
        self.interval = max(
            MIN_INTERVAL_SECONDS,
            COST_FACTOR * (time.perf_counter() - began),
            sum(len(html) for _, html in changes) / BYTES_PER_SECOND,
        )
        return num_blocks, changes

    def _reconcile(self) -> int:
        text = "".join(self._source) + ("\n" if self._carriage_return else "")
        self.num_parsed += len(text)
        blocks = render(text)
        for index, html in enumerate(blocks):
            self._set(index, html)
        return len(blocks)

    def _advance(self) -> int:
        if self._new_line:
            self._new_line = False
            cut = self._cut()
            if cut:
                self._close(cut)
        env: Env = {"references": dict(self._references), "growing": True}
        return self._render(self._tail, env)

    def _render(self, source: str, env: Env) -> int:
        """Render `source` as the blocks after the closed ones; returns how many blocks there are then."""
        index = self._num_closed
        for block in top_level(self._parse(source, env)):
            self._set(index, render_block(block, env))
            index += 1
        return index

    def _parse(self, source: str, env: Env) -> list[Token]:
        self.num_parsed += len(source)
        return parser().parse(source, env)

    def _set(self, index: int, html: str) -> None:
        if index == len(self._html):
            self._html.append(html)
        elif self._html[index] == html:
            return
        else:
            self._html[index] = html
        self._changed.add(index)

    def _cut(self) -> int:
        """The line of the open text up to which its blocks can no longer change."""
        text = self._tail[: self._tail.rfind("\n") + 1]
        self.num_parsed += len(text)
        tokens = structure_parser().parse(text, {"references": dict(self._references)})
        starts = [token for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
        blocks = [token.map or [0, 0] for token in starts]
        if len(blocks) < 2:
            return 0
        lines = text.split("\n")
        last = len(blocks) - 1
        # A definition leaves no token: a title over several lines may still swallow the block after it.
        while last > 0 and any(line.strip() for line in lines[blocks[last - 1][1] : blocks[last][0]]):
            last -= 1
        # `$$` without its partner: an open display formula that blank lines don't end.
        for index in range(max(0, last - _FORMULA_BLOCKS), last):
            is_text = starts[index].type in ("paragraph_open", "heading_open")
            if is_text and lines[blocks[index][0]].lstrip().startswith("$$"):
                last = index
                break
        # `\[` without its partner: open while no blank line has followed.
        begin = None
        number = len(lines) - 2
        while number >= 0 and number > len(lines) - _FORMULA_LINES and lines[number].strip():
            if lines[number].lstrip().startswith("\\["):
                begin = number
            number -= 1
        while begin is not None and last > 0 and blocks[last][0] > begin:
            last -= 1
        return blocks[last][0]

    def _close(self, num_lines: int) -> None:
        lines = self._tail.split("\n")[:num_lines]
        head = "\n".join(lines) + "\n"
        env: Env = {"references": dict(self._references)}
        index = self._num_closed
        for block in top_level(self._parse(head, env)):
            self._set(index, render_block(block, env))
            begin, end = next((token.map for token in block if token.map), (0, 0))
            source = "\n".join(lines[begin:end])
            if "[" in source:
                self._with_brackets.append((index, source))
            index += 1
        self._num_closed = index
        self._tail = self._tail[len(head) :]
        if len(env["references"]) > len(self._references):
            self._references = env["references"]
            self._render_references()

    def _render_references(self) -> None:
        """A new definition can turn what closed blocks hold in brackets into links."""
        for index, source in self._with_brackets:
            env: Env = {"references": dict(self._references)}
            blocks = top_level(self._parse(source, env))
            self._set(index, "".join(render_block(block, env) for block in blocks))
