"""The app of conversations."""

from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "chatsite.chat"
    label = "chat"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from chatsite.chat import keeping, search, titles

        keeping.connect()
        search.connect()
        titles.connect()
