"""A connection that was cut off is noticed soon."""

import socket

import redis
from celery import current_app
from django.conf import settings

from generation import keepalive
from generation.delivery import stream


def _assert_noticed_soon(connection: "redis.Connection") -> None:
    connection.connect()
    try:
        found = connection._sock
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option, value in keepalive.TCP_OPTIONS.items():
            assert found.getsockopt(socket.IPPROTO_TCP, option) == value
    finally:
        connection.disconnect()


def test_it_notices_on_the_connections_of_replies() -> None:
    _assert_noticed_soon(stream.sync_client().connection_pool.make_connection())


def test_it_notices_on_the_brokers_connections() -> None:
    """A worker that lost Redis looked alive and took no task until it was restarted.

    celery/celery#8091
    """
    with current_app.connection() as connection:
        _assert_noticed_soon(connection.default_channel.client.connection_pool.make_connection())


def test_it_leaves_unix_sockets_alone() -> None:
    url = "unix:///run/redis/redis.sock"
    redis.Redis.from_url(url, **keepalive.options(url)).connection_pool.make_connection()


def test_it_notices_on_the_channel_layers_connection() -> None:
    assert settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0]["socket_keepalive_options"] == keepalive.TCP_OPTIONS
