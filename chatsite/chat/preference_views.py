"""What the settings panel asks for: what is set, and changes. Each answers with JSON. Another's is like none."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from chatsite.chat import preferences
from chatsite.chat.models import Conversation
from chatsite.chat.preference_form import NAMES
from chatsite.chat.preferences import BadPreferences, Chosen

FIELDS = ("model", "system_prompt", *NAMES)


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def of_person(request: HttpRequest) -> HttpResponse:
    """What each new conversation begins with. A change is kept with `as_default`=1, else only looked at."""
    default = preferences.of_person(request.user.pk)
    if request.method == "GET":
        return _answer(default, default)
    try:
        chosen = preferences.change(default, _named(request))
    except BadPreferences as bad:
        return _refused(bad)
    return _answer(chosen, _kept(request, default))


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def of_conversation(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    """What one conversation has. Only the fields sent change; with `as_default`=1 for each new one, too."""
    with transaction.atomic():
        own = Conversation.objects.filter(user=request.user.pk)
        if request.method == "POST":
            own = own.select_for_update()
        found = get_object_or_404(own, pk=conversation_id)
        chosen, default = Chosen.of(found), preferences.of_person(request.user.pk)
        if request.method == "GET":
            return _answer(chosen, default)
        try:
            chosen = preferences.change(chosen, _named(request))
            default = _kept(request, default)
        except BadPreferences as bad:
            return _refused(bad)
        preferences.keep_for(found, chosen)
    return _answer(chosen, default)


def _named(request: HttpRequest) -> dict[str, object]:
    return {name: request.POST[name] for name in FIELDS if name in request.POST}


def _kept(request: HttpRequest, default: Chosen) -> Chosen:
    """The person's default, changed as well where that is asked for."""
    if request.POST.get("as_default") != "1":
        return default
    changed = preferences.change(default, _named(request))
    preferences.keep_as_default(request.user.pk, changed)
    return changed


def _answer(chosen: Chosen, default: Chosen) -> JsonResponse:
    return JsonResponse({"settings": chosen.as_written, "defaults": default.as_written})


def _refused(bad: BadPreferences) -> JsonResponse:
    return JsonResponse({"errors": bad.errors}, status=400)
