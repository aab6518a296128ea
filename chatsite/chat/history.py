"""What the thread is made of before any script runs: its entries."""

from dataclasses import dataclass, replace

from django.utils.translation import gettext, ngettext

from chatsite.chat.branches import Tree
from chatsite.chat.markdown import render
from chatsite.chat.models import Conversation, Feedback, Message
from chatsite.chat.threads import messages_of, reply_text
from generation import overview
from generation.models import Job
from generation.told import told


@dataclass(frozen=True, slots=True)
class Entry:
    """A prompt, or a reply with the state of its last job. `number` of `count` versions, from 1."""

    id: str
    is_prompt: bool
    text: str
    blocks: list[str]
    job: str = ""
    state: str = ""
    outcome: str = ""
    can_continue: bool = False
    model: str = ""
    tokens: int = 0
    """Of its prompt and itself: how much of a model's context they fill."""
    dropped: int = 0
    number: int = 1
    count: int = 1
    context_cleared: bool = False
    feedback: Feedback | None = None

    @property
    def is_unfinished(self) -> bool:
        return self.state in (Job.State.QUEUED, Job.State.RUNNING)


def entries(conversation: Conversation) -> list[Entry]:
    """The branch of a conversation that is shown."""
    tree = Tree(conversation)
    branch = tree.branch(tree.shown_leaf())
    feedback = {
        each.message_id: each
        for each in Feedback.objects.filter(message__conversation=conversation, user_id=conversation.user_id)
    }
    return [
        replace(
            _entry(message),
            number=tree.siblings(message.pk).index(message.pk) + 1,
            count=len(tree.siblings(message.pk)),
            context_cleared=message.context_cleared,
            feedback=feedback.get(message.pk),
        )
        for message in messages_of(conversation, branch)
    ]


def _entry(message: Message) -> Entry:
    if message.role == Message.Role.USER:
        return Entry(str(message.pk), True, message.text, [])
    parts = list(message.parts.all())
    job = parts[-1].job if parts else None
    # While a job runs, its text is in its stream, which the script follows from the beginning.
    unfinished = job is not None and not job.is_final
    blocks = [] if unfinished and len(parts) == 1 else render(reply_text(message))
    if job is None:
        return Entry(str(message.pk), False, "", blocks)
    return Entry(
        id=str(message.pk),
        is_prompt=False,
        text="",
        blocks=blocks,
        job=str(job.pk),
        state=job.state,
        outcome=outcome(job),
        can_continue=job.finish_reason == "length",
        model=job.model,
        tokens=job.prompt_tokens + job.completion_tokens,
        dropped=job.dropped_messages,
    )


def outcome(job: Job) -> str:
    """How a job ended, in the words that the script uses too."""
    if job.state == Job.State.FINISHED:
        number = job.completion_tokens
        words = [ngettext("%(number)s token", "%(number)s tokens", number) % {"number": number}]
        if speed := overview.tokens_per_second(job):
            words.append(gettext("%(speed)s tokens/s") % {"speed": f"{speed:.1f}"})
        if job.finish_reason == "length":
            words.append(gettext("ended at its length"))
        if number := job.dropped_messages:
            dropped = ngettext(
                "the oldest message no longer fits and was left out",
                "the oldest %(number)s messages no longer fit and were left out",
                number,
            )
            words.append(dropped % {"number": number})
        return " · ".join(words)
    message = told(job.error_message)
    if job.state == Job.State.FAILED:
        return gettext("failed: %(message)s (%(code)s)") % {"message": message, "code": job.error_code}
    if job.state == Job.State.EXPIRED:
        return gettext("waited too long: %(message)s") % {"message": message} if message else gettext("waited too long")
    return gettext("stopped") if job.state == Job.State.CANCELLED else ""
