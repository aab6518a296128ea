"""Whether the sign-in that a socket was opened with still holds.

A socket outlives the request that opened it: signing out, deactivation, an expired session or a new password must
end it, which only a look at the rows can tell.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, get_user_model
from django.utils import timezone
from django.utils.crypto import constant_time_compare


@dataclass(frozen=True, slots=True)
class SignIn:
    """`session_key` is None where the scope has no session (a host's own way to sign in)."""

    user_id: Any
    session_key: str | None
    auth_hash: str


def read_sign_in(scope: Any) -> SignIn:
    """The scope's sign-in; reads the session, so it belongs into a database thread."""
    session = scope.get("session")
    key = session.session_key if session is not None else None
    return SignIn(scope["user"].pk, key, session.get(HASH_SESSION_KEY, "") if session is not None else "")


def ended(sign_ins: Collection[SignIn]) -> set[SignIn]:
    """Those that are over. At most one query for the users and one for the sessions."""
    users = get_user_model()._default_manager.filter(pk__in={sign_in.user_id for sign_in in sign_ins}, is_active=True)
    active = {user.pk: user for user in users}
    live = _live_sessions({sign_in.session_key for sign_in in sign_ins if sign_in.session_key})
    over = set()
    for sign_in in sign_ins:
        user = active.get(sign_in.user_id)
        if (
            user is None
            or (sign_in.session_key is not None and sign_in.session_key not in live)
            or (sign_in.auth_hash and not _same_password(user, sign_in.auth_hash))
        ):
            over.add(sign_in)
    return over


def _same_password(user: Any, auth_hash: str) -> bool:
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(auth_hash, each) for each in hashes)


def _live_sessions(keys: Collection[str]) -> set[str]:
    store = import_module(settings.SESSION_ENGINE).SessionStore
    if settings.SESSION_ENGINE.endswith("signed_cookies"):
        return set(keys)  # nothing is kept on the server that could end
    if hasattr(store, "get_model_class"):
        rows = store.get_model_class().objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
        return set(rows.values_list("session_key", flat=True))
    return {key for key in keys if store().exists(key)}
