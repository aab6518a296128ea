"""The ASGI application: Django over HTTP, the chat's consumer over WebSocket."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
http = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import path  # noqa: E402

from chatsite.chat.consumer import ChatConsumer  # noqa: E402
from generation.origins import OwnOriginOnly  # noqa: E402
from generation.unavailable import SaysWhenUnavailable  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": OwnOriginOnly(
            SaysWhenUnavailable(
                AuthMiddlewareStack(
                    URLRouter(
                        [
                            path("ws/chat/new/", ChatConsumer.as_asgi()),
                            path("ws/chat/<uuid:conversation>/", ChatConsumer.as_asgi()),
                        ]
                    )
                )
            )
        ),
    }
)
