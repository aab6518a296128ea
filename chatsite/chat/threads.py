"""Reading conversations: one branch as a list, a reply's text, a title. Writes nothing."""

from django.db.models import Prefetch

from chatsite.chat.models import Conversation, Message, ReplyJob

TITLE_LENGTH = 60


def thread(conversation: Conversation, leaf: Message | None = None) -> list[Message]:
    """The messages from the root to `leaf`, else to the newest message; three queries, parts and jobs included."""
    parts = ReplyJob.objects.select_related("job").defer("job__messages", "job__error_traceback")
    messages = list(conversation.messages.prefetch_related(Prefetch("parts", queryset=parts)))
    if not messages:
        return []
    by_id = {message.pk: message for message in messages}
    message = messages[-1] if leaf is None else by_id.get(leaf.pk)
    branch = []
    while message is not None:
        branch.append(message)
        message = by_id.get(message.parent_id) if message.parent_id else None
    return branch[::-1]


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
