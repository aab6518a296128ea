"""A conversation's title by its model: a job of the lowest priority, asked for once, after the first finished reply.

It waits in line like every other. Whatever becomes of it, the title is the first prompt's first line until then,
and one that a person wrote stays.
"""

import logging
import re
from typing import Any

from django.db import IntegrityError, transaction

from chatsite.chat import news
from chatsite.chat.models import Conversation, ReplyJob, TitleJob
from chatsite.chat.search import index_title
from chatsite.chat.threads import TITLE_LENGTH
from generation import admission, conf, queue, signals
from generation.models import Job, Priority

logger = logging.getLogger(__name__)

ASK = """Here is the beginning of a conversation.

Question: {question}

Answer: {answer}

Write a title for it: at most six words, in the language of the question. Answer with the title alone."""
QUESTION_LENGTH, ANSWER_LENGTH = 1500, 500
PARAMS = {"max_new_tokens": 12, "temperature": 0.2}

_THOUGHTS = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL | re.IGNORECASE)
_LABEL = re.compile(r"\Atitle\s*:\s*", re.IGNORECASE)
# Of Markdown and of quotations, in the languages that have their own.
_AROUND = " \t#*_`~>|\"'“”„‚‘’«»‹›「」『』《》-–—•.…:;,"
_EMPHASIS = re.compile(r"(\*\*|__|~~|\*|`)(?=\S)(.+?)(?<=\S)\1")


def clean(written: str, *, is_cut: bool = False) -> str:
    """One line of at most 60 characters without quotation marks or Markdown; empty if there is no title in it.

    What was cut at its length ends with its last whole word.
    """
    text = _THOUGHTS.sub("", admission.storable(written))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    number, line = next(((number, line) for number, line in enumerate(lines) if line.strip(_AROUND)), (0, ""))
    if is_cut and number == len(lines) - 1 and " " in line:
        line = line.rpartition(" ")[0]
    for _ in range(3):  # one in another
        line = _EMPHASIS.sub(r"\2", line)
    line = _LABEL.sub("", line.strip(_AROUND)).strip(_AROUND)
    if len(line) > TITLE_LENGTH:
        line = (line[:TITLE_LENGTH].rpartition(" ")[0] or line[:TITLE_LENGTH]).rstrip(_AROUND)
    return line if admission.is_visible(line) else ""


def ask(job: Job) -> Job | None:
    """Put the title's job in line if this one wrote a conversation's first finished reply."""
    part = ReplyJob.objects.filter(job=job).select_related("message__conversation__user", "message__parent").first()
    spec = conf.models().get(job.model)
    if part is None or part.message.parent is None or spec is None or spec.kind == "mock" or not job.text.strip():
        return None
    conversation = part.message.conversation
    finished = ReplyJob.objects.filter(message__conversation=conversation, job__state=Job.State.FINISHED)
    if conversation.title_edited or conversation.deleted_at is not None or finished.exclude(job=job).exists():
        return None
    question = part.message.parent.text[:QUESTION_LENGTH]
    messages = [{"role": "user", "content": ASK.format(question=question, answer=job.text[:ANSWER_LENGTH])}]
    try:
        with transaction.atomic():
            asked = queue.submit(conversation.user, messages, model=job.model, params=PARAMS, priority=Priority.BATCH)
            TitleJob.objects.create(conversation=conversation, job=asked)
    except admission.Refused as refused:
        logger.info("no title is asked for: %s", refused.message)
        return None
    except IntegrityError:
        return None  # two replies ended at the same moment
    return asked


def take(conversation_id: Any, job: Job) -> None:
    """Give the conversation the title that the job wrote, unless a person has written one."""
    title = clean(job.text, is_cut=job.finish_reason == "length")
    if not title:
        return
    with transaction.atomic():
        if not Conversation.objects.filter(pk=conversation_id, title_edited=False).update(title=title):
            return
        index_title(conversation_id, job.user_id, title)
    news.tell(conversation_id, "title", title=title)


def _job_finished(job: Job, **_: Any) -> None:
    conversation_id = TitleJob.objects.filter(job=job).values_list("conversation_id", flat=True).first()
    if conversation_id is None:
        ask(job)
    else:
        take(conversation_id, job)


def connect() -> None:
    """Once, when the apps are ready."""
    signals.job_finished.connect(_job_finished, sender=Job, dispatch_uid="titles")
