"""The site's settings with heartbeats ten times as often, so that silence can be waited for."""

from tests.faults.settings import *  # noqa: F403
from tests.faults.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = [*APPS, "tests.faults.brisk.Brisk"]
