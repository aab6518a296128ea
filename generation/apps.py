"""The app's configuration: registers checks and the admin's verbose name."""

from django.apps import AppConfig


class GenerationConfig(AppConfig):
    name = "generation"
    verbose_name = "Generation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from generation import checks  # noqa: F401  (registers them)
