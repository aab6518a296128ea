"""Opens a socket that can't be served now, says on it what is away, and closes it again.

Who a person is stands in the database, and a consumer's channel in Redis: without them no consumer is reached, and
a page would only see that the connection failed.
"""

import json
import logging
from typing import Any

import redis
from django.db import DatabaseError, InterfaceError

from generation.languages import language_of
from generation.outages import DATABASE, REDIS, status_frame

logger = logging.getLogger(__name__)

TRY_AGAIN_LATER = 4503


class SaysWhenUnavailable:
    """ASGI middleware around everything that asks the database or Redis before a socket is greeted."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        accepted = False

        async def send_on(message: Any) -> None:
            nonlocal accepted
            accepted = accepted or message["type"] == "websocket.accept"
            await send(message)

        try:
            await self._application(scope, receive, send_on)
        except (DatabaseError, InterfaceError, redis.RedisError) as error:
            logger.warning("a socket could not be served: %r", error)
            if not accepted:
                await send({"type": "websocket.accept"})
            away = REDIS if isinstance(error, redis.RedisError) else DATABASE
            frame = status_frame((away,), language_of(scope))
            await send({"type": "websocket.send", "text": json.dumps(frame)})
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
