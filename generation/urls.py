"""The app's addresses, to be included at the root: health pages and metrics. None needs a session."""

from django.urls import path

from generation import health, metrics

app_name = "generation"
urlpatterns = [
    path("health/live", health.live, name="live"),
    path("health/ready", health.ready, name="ready"),
    path("health/load", health.load, name="load"),
    path("metrics", metrics.metrics, name="metrics"),
]
