"""Reading conversations: one branch as a list, a reply's text, a title. Writes nothing."""

from uuid import UUID

from django.db.models import Prefetch

from chatsite.chat.branches import Tree
from chatsite.chat.models import Conversation, Message, ReplyJob

TITLE_LENGTH = 60


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
    """A conversation's title from its first prompt: the first line with words, cut between words."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    # A text without blanks, as Chinese or Japanese has, is cut anywhere.
    whole_words = cut.rsplit(" ", 1)[0] if " " in cut[TITLE_LENGTH // 2 :] else cut
    return whole_words.rstrip() + "…"
