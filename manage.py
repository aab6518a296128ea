#!/usr/bin/env python
"""The command line of the site; `python manage.py up` starts everything on this machine."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
    if sys.argv[1:2] == ["up"]:
        # Settings need a secret key and Redis' address, which local mode makes for itself.
        from chatsite.local.preparation import prepare

        prepare(sys.argv[2:])
    elif sys.argv[1:2] == ["benchmark"] and not os.environ.get("SECRET_KEY"):
        # It measures before anything is set up, and signs nothing.
        os.environ["SECRET_KEY"] = "for-measuring-only"
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
