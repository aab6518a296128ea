"""The site people see. The Celery app is imported here so that `shared_task` finds it."""

from chatsite.celery import app as celery_app

__all__ = ["celery_app"]
