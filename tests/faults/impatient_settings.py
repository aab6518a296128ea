"""The site's settings, misbehaving models, and a broker that delivers again what isn't acknowledged in a second."""

from tests.faults.settings import *  # noqa: F403
from tests.faults.settings import CELERY_BROKER_TRANSPORT_OPTIONS as OPTIONS

CELERY_BROKER_TRANSPORT_OPTIONS = {
    **OPTIONS,
    "visibility_timeout": 1,
    # By default it looks for such messages every hundred seconds.
    "unacked_restore_interval": 0.5,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 1,
}
