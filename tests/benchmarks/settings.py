"""The site's settings, and workers that note when their engine had each token."""

from chatsite.settings import *  # noqa: F403

CELERY_IMPORTS = ["tests.benchmarks.stamping"]
