"""The texts of the page's scripts in one language: a script of its own that `gettext.js` hands to the modules.

Its address holds a hash of what it says, so that a browser keeps it for good and an upgrade never mixes two.
"""

import functools
import hashlib

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import override
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

FOR_GOOD = "public, max-age=31536000, immutable"


def address(language: str) -> str:
    return reverse("catalogue", args=[language, _version(language)])


@require_safe
def script(request: HttpRequest, language: str, version: str) -> HttpResponse:
    if language not in dict(settings.LANGUAGES):
        raise Http404
    # While an upgrade runs a page may come from a process of another version: it is answered, and nobody keeps it.
    kept = FOR_GOOD if version == _version(language) else "no-store"
    headers = {"Cache-Control": kept, "Content-Language": language}
    return HttpResponse(_texts(language), content_type="text/javascript; charset=utf-8", headers=headers)


@functools.cache
def _texts(language: str) -> bytes:
    with override(language):
        return JavaScriptCatalog(packages=["chatsite.chat"]).get(HttpRequest()).content


@functools.cache
def _version(language: str) -> str:
    return hashlib.sha256(_texts(language)).hexdigest()[:12]
