"""The site's settings, misbehaving models, and a broker that delivers again what isn't acknowledged in a second."""

from tests.faults.settings import *  # noqa: F403
from tests.faults.settings import CELERY_BROKER_TRANSPORT_OPTIONS as OPTIONS

CELERY_BROKER_TRANSPORT_OPTIONS = {**OPTIONS, "visibility_timeout": 1}
