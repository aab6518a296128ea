"""Refuses WebSockets that another site's page opens with a person's cookie."""

import logging
from typing import Any
from urllib.parse import urlparse

from channels.security.websocket import OriginValidator
from django.conf import settings

logger = logging.getLogger(__name__)


class OwnOriginOnly(OriginValidator):  # type: ignore[misc]
    """Accepts origins of `ALLOWED_HOSTS` (any port) and `CSRF_TRUSTED_ORIGINS`; logs what it refuses."""

    def __init__(self, application: Any) -> None:
        hosts = list(settings.ALLOWED_HOSTS)
        if settings.DEBUG and not hosts:
            hosts = ["localhost", "127.0.0.1", "[::1]"]
        super().__init__(application, [*hosts, *settings.CSRF_TRUSTED_ORIGINS])

    def valid_origin(self, parsed_origin: Any) -> bool:
        valid = parsed_origin is not None and super().valid_origin(parsed_origin)
        if not valid:
            shown = parsed_origin.geturl() if parsed_origin is not None else "none"
            logger.warning(
                "a WebSocket with the Origin %s was refused; ALLOWED_HOSTS and CSRF_TRUSTED_ORIGINS say which may",
                shown,
            )
        return bool(valid)

    def match_allowed_origin(self, parsed_origin: Any, pattern: str) -> bool:
        if parsed_origin.scheme not in ("http", "https"):
            return False
        if "://" in pattern and "*." in pattern:
            # A trusted origin may be a wildcard with a scheme: https://*.example.com
            trusted = urlparse(pattern)
            wildcard = f".{(trusted.hostname or '').removeprefix('*.')}"
            same_scheme = trusted.scheme == parsed_origin.scheme
            return bool(same_scheme and super().match_allowed_origin(parsed_origin, wildcard))
        return bool(super().match_allowed_origin(parsed_origin, pattern))
