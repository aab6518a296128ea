"""Database, static files, and the two first people: made when missing, left alone when there."""

import getpass
import hashlib

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

from chatsite.local.folder import VarFolder

ADMIN = "admin"
SOMEBODY = "me"


def migrate() -> None:
    call_command("migrate", interactive=False, verbosity=0)


def collect_static_files(folder: VarFolder) -> None:
    """Collect them if any source changed since the last time."""
    mark = _sources()
    path = folder.file("static.sha256")
    if path.exists() and path.read_text() == mark and folder.file("static/staticfiles.json").exists():
        return
    call_command("collectstatic", interactive=False, verbosity=0)
    folder.write(path.name, mark)


def _sources() -> str:
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list(["CVS", ".*", "*~"]):
            modified = storage.get_modified_time(name).timestamp()
            digest.update(f"{name} {storage.size(name)} {modified}\n".encode())
    return digest.hexdigest()


def admin_password(folder: VarFolder) -> str | None:
    """The password of the user `admin`, who is made if missing; None if somebody changed it since."""
    users = get_user_model()._default_manager
    known = users.filter(username=ADMIN).first()
    if known is None:
        password = folder.secret("admin_password", 12)
        User.objects.create_superuser(ADMIN, password=password)
        return password
    if not folder.file("admin_password").exists():
        return None
    password = folder.secret("admin_password")
    return password if known.check_password(password) else None


def local_person() -> User:
    """The person of the printed sign-in link, named after the system's user; never staff.

    Not the admin: signing in with a password makes the same user's link invalid.
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = SOMEBODY
    for candidate in (name, SOMEBODY, *(f"{SOMEBODY}{number}" for number in range(2, 100))):
        if candidate == ADMIN:
            continue
        user = person(candidate)
        if not user.is_staff and not user.is_superuser and user.is_active:
            return user
    raise RuntimeError("no name is left for a person who is not staff")


def person(name: str) -> User:
    """The user of that name, made with an unusable password if new."""
    user, is_new = User.objects.get_or_create(username=name)
    if is_new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user
