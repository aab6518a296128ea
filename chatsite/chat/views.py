"""The chat's pages: a new conversation, one that has begun, and the search. Everything live comes over the socket."""

import sys
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chatsite.chat.history import Entry, entries
from chatsite.chat.models import Conversation
from chatsite.chat.preference_form import number_fields, stop_limits
from chatsite.chat.search import search
from chatsite.chat.sidebar import BadMark, sidebar
from chatsite.chat.words import MAX_ASKED_CHARS

MAX_SEARCH_PAGES = 50
EXAMPLES = [
    (_("Explain something"), _("Explain how a rainbow forms, in three short paragraphs.")),
    (_("Write some code"), _("Write a Python function that finds the longest word in a text, with an example.")),
    (_("Compare"), _("Compare tea and coffee in a small table: taste, caffeine, how to make it.")),
    (_("Draft a message"), _("Write a short, friendly message that moves a meeting to next Tuesday at ten.")),
]


@never_cache
@login_required
@require_safe
def new_conversation(request: HttpRequest) -> HttpResponse:
    """A page without a conversation: its first prompt makes one."""
    return _page(request, None, [])


@never_cache
@login_required
@require_safe
def conversation(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    """One of the person's own conversations; another's is like none."""
    found = get_object_or_404(Conversation, pk=conversation_id, user=request.user.pk)
    return _page(request, found, entries(found))


@never_cache
@login_required
@require_safe
def conversations(request: HttpRequest) -> HttpResponse:
    """A page of the list at the side, without a page around it; `after` is what the page before it ended with."""
    try:
        listed = sidebar(request.user.pk, request.GET.get("after", ""))
    except BadMark:
        return HttpResponseBadRequest(str(_("There is no such page.")))
    return render(request, "chat/conversations.html", {"listed": listed})


@never_cache
@login_required
@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """What the person's own conversations say about the words asked for."""
    asked = request.GET.get("q", "")[:MAX_ASKED_CHARS].replace("\0", "").strip()
    number = request.GET.get("page", "1")
    page = min(max(1, int(number)), MAX_SEARCH_PAGES) if number.isdecimal() and len(number) < 4 else 1
    results, has_more = search(request.user.pk, asked, page)
    context = {
        "asked": asked,
        "results": results,
        "page": page,
        "previous": page - 1,
        "next": page + 1 if has_more and page < MAX_SEARCH_PAGES else None,
        "listed": sidebar(request.user.pk),
    }
    return render(request, "chat/search.html", context)


def icon(request: HttpRequest) -> HttpResponse:
    """For pages that name no icon, such as the admin's: browsers ask here for one."""
    return redirect(static("chat/icon.svg"))


def failed(request: HttpRequest) -> HttpResponse:
    """Handler of what a view raised. Where only the database is away the page says so and looks again by itself."""
    if isinstance(sys.exc_info()[1], (OperationalError, InterfaceError)):
        return HttpResponse(render_to_string("503.html"), status=503, headers={"Retry-After": "5"})
    return HttpResponse(render_to_string("500.html"), status=500)


def _page(request: HttpRequest, found: Conversation | None, history: list[Entry]) -> HttpResponse:
    context = {
        "conversation": found,
        "entries": history,
        "listed": sidebar(request.user.pk),
        "examples": EXAMPLES,
        "number_fields": number_fields(),
        "stop_limits": stop_limits(),
    }
    return render(request, "chat/page.html", context)
