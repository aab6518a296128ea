"""One-time sign-in links, and where the running site is."""

import json
from urllib.parse import urlsplit

import sesame.utils
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse


def sign_in_link(user: User, origin: str) -> str:
    """A link that signs this user in once, within SESAME_MAX_AGE seconds."""
    return f"{origin}{reverse('one-time-link')}{sesame.utils.get_query_string(user)}"


def site_origin() -> str:
    """Scheme, host and port of the running site: of `up`, else as the settings name it."""
    try:
        url = urlsplit(json.loads((settings.VAR / "up.json").read_text(encoding="utf-8"))["chat_url"])
        return f"{url.scheme}://{url.netloc}"
    except (OSError, ValueError, KeyError):
        pass
    if settings.CSRF_TRUSTED_ORIGINS:
        return str(settings.CSRF_TRUSTED_ORIGINS[0])
    return f"http://127.0.0.1:{settings.PORT or 8000}"
