"""What a person does with messages that are there: look at another version, clear the context, judge, copy.

Each answers for another person's conversation or message as for none.
"""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from chatsite.chat import news
from chatsite.chat.branches import Tree
from chatsite.chat.history import entries
from chatsite.chat.models import MAX_WORD_LENGTH, Conversation, Feedback, Message
from chatsite.chat.threads import reply_text
from generation.admission import storable

CONFLICT = 409
STEPS = {"previous": -1, "next": 1}


@never_cache
@login_required
@require_POST
def step(request: HttpRequest, conversation_id: UUID, message_id: UUID) -> HttpResponse:
    """Show the version before or after a message (`to`: previous, next), down to its newest leaf; the new thread."""
    by = STEPS.get(request.POST.get("to", ""))
    if by is None:
        return _bad("to must be previous or next.")
    with transaction.atomic():
        found = _locked(request, conversation_id)
        message = get_object_or_404(found.messages, pk=message_id)
        tree = Tree(found)
        versions = tree.siblings(message.pk)
        number = min(max(versions.index(message.pk) + by, 0), len(versions) - 1)
        found.shown_leaf = tree.newest_leaf(versions[number])
        found.save(update_fields=["shown_leaf"])
    return render(request, "chat/thread.html", {"entries": entries(found)})


@never_cache
@login_required
@require_POST
def clear_context(request: HttpRequest, conversation_id: UUID, message_id: UUID) -> HttpResponse:
    """Whether later prompts carry what stands down to this reply (`cleared`: 0, 1); only before the next prompt."""
    cleared = request.POST.get("cleared", "")
    if cleared not in ("0", "1"):
        return _bad("cleared must be 0 or 1.")
    with transaction.atomic():
        found = _locked(request, conversation_id)
        message = get_object_or_404(found.messages, pk=message_id, role=Message.Role.ASSISTANT)
        if message.children.exists():
            return _plain(gettext("The next prompt was asked already."), status=CONFLICT)
        message.context_cleared = cleared == "1"
        message.save(update_fields=["context_cleared"])
    news.tell(conversation_id, "marked", message=str(message.pk), cleared=message.context_cleared)
    return HttpResponse(status=204)


@never_cache
@login_required
@require_POST
def judge(request: HttpRequest, conversation_id: UUID, message_id: UUID) -> HttpResponse:
    """Thumb up or down on a reply (`verdict`: up, down, or empty to take it back), with a `word` if there is one."""
    verdict, word = request.POST.get("verdict", ""), storable(request.POST.get("word", "")).strip()
    if verdict and verdict not in Feedback.Verdict.values:
        return _bad("verdict must be up, down or empty.")
    if len(word) > MAX_WORD_LENGTH:
        words = gettext("The word has %(length)s characters; at most %(limit)s fit.")
        return _bad(words % {"length": f"{len(word):,}", "limit": MAX_WORD_LENGTH})
    reply = _reply(request, conversation_id, message_id)
    person = reply.conversation.user_id
    if verdict:
        defaults = {"verdict": verdict, "word": word}
        Feedback.objects.update_or_create(message=reply, user_id=person, defaults=defaults)
    else:
        Feedback.objects.filter(message=reply, user_id=person).delete()
    word = word if verdict else ""
    news.tell(conversation_id, "marked", message=str(reply.pk), verdict=verdict, word=word)
    return HttpResponse(status=204)


@never_cache
@login_required
@require_safe
def markdown(request: HttpRequest, conversation_id: UUID, message_id: UUID) -> HttpResponse:
    """A reply's text as it is stored."""
    return _plain(reply_text(_reply(request, conversation_id, message_id)))


def _locked(request: HttpRequest, conversation_id: UUID) -> Conversation:
    """Prompts lock it too, so that none comes in between."""
    own = Conversation.objects.select_for_update().filter(user=request.user.pk)
    return get_object_or_404(own, pk=conversation_id)


def _reply(request: HttpRequest, conversation_id: UUID, message_id: UUID) -> Message:
    own = Message.objects.select_related("conversation").filter(
        conversation_id=conversation_id, conversation__user=request.user.pk
    )
    return get_object_or_404(own, pk=message_id, role=Message.Role.ASSISTANT)


def _bad(text: str) -> HttpResponse:
    return HttpResponseBadRequest(text, content_type="text/plain; charset=utf-8")


def _plain(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
