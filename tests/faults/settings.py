"""The site's settings, and a model that misbehaves on request: in its workers alone."""

from chatsite.settings import *  # noqa: F403

CELERY_IMPORTS = ["tests.faults.misbehaviour"]
