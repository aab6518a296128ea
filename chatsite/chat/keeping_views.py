"""What the list of conversations asks for: each answers with JSON, or with a file. Another's conversation is none."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from chatsite.chat import keeping, transfer
from chatsite.chat.downloads import download
from chatsite.chat.models import Conversation

MAX_NAME_CHARS = 60
KINDS = {
    "markdown": (transfer.as_markdown, "md", "text/markdown; charset=utf-8"),
    "json": (transfer.as_json, "json", "application/json"),
}


def _own(request: HttpRequest, conversation_id: UUID) -> Conversation:
    return get_object_or_404(Conversation, pk=conversation_id, user=request.user.pk)


@never_cache
@login_required
@require_POST
def rename(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    conversation = _own(request, conversation_id)
    try:
        return JsonResponse({"title": keeping.rename(conversation, request.POST.get("title", ""))})
    except keeping.BadTitle as error:
        return JsonResponse({"error": str(error)}, status=400)


@never_cache
@login_required
@require_POST
def pin(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    """`pinned` is 1, or 0 to take it off."""
    pinned = request.POST.get("pinned") == "1"
    keeping.pin(_own(request, conversation_id), pinned)
    return JsonResponse({"pinned": pinned})


@never_cache
@login_required
@require_POST
def delete(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    keeping.delete(_own(request, conversation_id))
    return JsonResponse({})


@never_cache
@login_required
@require_POST
def restore(request: HttpRequest, conversation_id: UUID) -> HttpResponse:
    """Take a deletion back, as long as nothing was swept away."""
    keeping.restore(get_object_or_404(Conversation.with_deleted, pk=conversation_id, user=request.user.pk))
    return JsonResponse({})


@never_cache
@login_required
@require_safe
def export(request: HttpRequest, conversation_id: UUID, kind: str) -> HttpResponseBase:
    conversation = _own(request, conversation_id)
    name = slugify(conversation.title, allow_unicode=True)[:MAX_NAME_CHARS].strip("-") or "conversation"
    return _download(request, kind, name, [conversation])


@never_cache
@login_required
@require_safe
def export_all(request: HttpRequest, kind: str) -> HttpResponseBase:
    name = f"conversations-{timezone.localdate():%Y-%m-%d}"
    return _download(request, kind, name, transfer.all_of(request.user.pk))


def _download(request: HttpRequest, kind: str, name: str, conversations: Iterable[Conversation]) -> HttpResponseBase:
    if kind not in KINDS:
        raise Http404
    write, suffix, content_type = KINDS[kind]
    return download(request, f"{name}.{suffix}", content_type, write(conversations))


@never_cache
@login_required
@require_POST
def take_in(request: HttpRequest) -> HttpResponse:
    """`file`: a JSON export. Either all of it is taken in or nothing."""
    file: Any = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return JsonResponse({"error": gettext("No file was sent.")}, status=400)
    if (size := file.size or 0) > transfer.MAX_BYTES:
        return JsonResponse({"error": transfer.too_large(size)}, status=413)
    try:
        return JsonResponse({"conversations": transfer.take_in(request.user, file.read())})
    except transfer.BadFile as error:
        return JsonResponse({"error": str(error)}, status=400)
