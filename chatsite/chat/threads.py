"""Reading conversations: one branch as a list, a reply's text, a title. Writes nothing."""

import re
from uuid import UUID

from django.db.models import Prefetch

from chatsite.chat.branches import Tree
from chatsite.chat.models import Conversation, Message, ReplyJob

TITLE_LENGTH = 60
LONGEST_LINE = 500
"""What is looked at of one: marks are sought from each mark on, so that a long line of them would take minutes."""

# Of Markdown: lines that are marks alone, marks before a line's words, links, and marks around words.
_NO_WORDS = re.compile(r"(?:```|~~~|[-*_=#>\s]+$)")
_LEADING = re.compile(r"(?:#{1,6} |> ?|[-*+] )+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_AROUND = re.compile(r"(?<![\w*`~])(\*{1,3}|`|~~)(?=\S)(.+?)(?<=\S)\1(?![\w*`~])", re.ASCII)


def thread(conversation: Conversation, leaf: Message | None = None) -> list[Message]:
    """The messages from the root to `leaf`, else of the branch that is shown; three queries, jobs included."""
    tree = Tree(conversation)
    return messages_of(conversation, tree.branch(tree.shown_leaf() if leaf is None else leaf.pk))


def messages_of(conversation: Conversation, branch: list[UUID]) -> list[Message]:
    """The messages with these ids, in this order, with their parts and jobs."""
    parts = ReplyJob.objects.select_related("job").defer("job__messages", "job__error_traceback")
    found = conversation.messages.prefetch_related(Prefetch("parts", queryset=parts)).in_bulk(branch)
    return [found[message] for message in branch if message in found]


def reply_text(message: Message) -> str:
    """The message's own text and what its jobs wrote, in order."""
    return message.text + "".join(part.job.text for part in message.parts.all())


def title_from(text: str) -> str:
    """A conversation's title from its first prompt: its first line, without Markdown's marks, cut between words.

    The page's script does the same, so that a title doesn't change at the first reload.
    """
    lines = [" ".join(line[:LONGEST_LINE].split()) for line in text.splitlines()]
    line = next(filter(None, map(_without_marks, lines)), "") or next(filter(None, lines), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    # A text without blanks, as Chinese or Japanese has, is cut anywhere.
    whole_words = cut.rsplit(" ", 1)[0] if " " in cut[TITLE_LENGTH // 2 :] else cut
    return whole_words.rstrip() + "…"


def _without_marks(line: str) -> str:
    if _NO_WORDS.match(line):
        return ""
    line = _LINK.sub(r"\1", _LEADING.sub("", line, count=1) if _LEADING.match(line) else line)
    for _ in range(2):  # one in another
        line = _AROUND.sub(r"\2", line)
    return line.strip()
