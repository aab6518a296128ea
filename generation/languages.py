"""In which language a person at a socket is answered: as on a page, the cookie's, else the browser's."""

from typing import Any

from django.http import HttpRequest, parse_cookie
from django.utils.translation import get_language_from_request


def language_of(scope: Any) -> str:
    """By the headers of the handshake."""
    headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    request = HttpRequest()
    request.COOKIES = parse_cookie(headers.get(b"cookie", ""))
    request.META["HTTP_ACCEPT_LANGUAGE"] = headers.get(b"accept-language", "")
    return get_language_from_request(request)
