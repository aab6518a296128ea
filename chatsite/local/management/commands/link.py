"""`manage.py link`: a one-time sign-in link for the running site."""

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from chatsite.local import first_start, links


class Command(BaseCommand):
    help = "Print a link that signs a person in once; a new name makes a new person."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="NAME", help="who is signed in (default: you)")

    def handle(self, *args: Any, **chosen: Any) -> None:
        name = chosen["user"]
        if name is None:
            user = first_start.local_person()
        else:
            try:
                User(username=name).clean_fields(exclude={"password"})
            except ValidationError as error:
                raise CommandError(f"{name!r} can't be a name: {' '.join(error.messages)}") from None
            user = first_start.person(name)
        if not user.is_active:
            raise CommandError(f"{user.username} is deactivated.")
        self.stdout.write(links.sign_in_link(user, links.site_origin()))
