"""Django system checks: settings that would lose replies in silence are errors at start.

They read settings and connect to nothing; whether Redis answers is `health.py`'s business.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from celery import current_app
from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from generation import conf
from generation.redis_address import RedisAddress

LAYER = "channels_redis.pubsub.RedisPubSubChannelLayer"


@register("generation")
def check_channel_layer(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    layer = _layer()
    backend = layer.get("BACKEND")
    if backend != LAYER:
        found = f"is {backend}" if backend else "is not set"
        return [
            Error(
                f"CHANNEL_LAYERS['default'] {found}; replies are published in another layer's format.",
                hint=f"Use {LAYER!r}. The core layer drops messages in silence when a reader is slow.",
                id="generation.E001",
            )
        ]
    hosts = (layer.get("CONFIG") or {}).get("hosts")
    if isinstance(hosts, (str, bytes)) or len(hosts or [None]) != 1:
        return [
            Error(
                "CHANNEL_LAYERS['default'] must have a list of one host.",
                hint="Tokens are published by the script that stores them, so the layer can't be spread.",
                id="generation.E005",
            )
        ]
    return []


@register("generation")
def check_one_redis(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Tokens are stored and published by one script, so everything has to meet in one Redis."""
    addresses = {
        "REDIS_URL": RedisAddress.parse(conf.redis_url()),
        "the Celery broker": RedisAddress.parse(
            current_app.conf.broker_write_url, current_app.conf.broker_transport_options
        ),
    }
    layer = _layer()
    if layer.get("BACKEND") == LAYER:
        hosts = (layer.get("CONFIG") or {}).get("hosts") or ["redis://localhost:6379"]
        if not isinstance(hosts, (str, bytes)):
            addresses["CHANNEL_LAYERS['default']"] = RedisAddress.of_layer_host(hosts[0])
    if len(set(addresses.values())) > 1:
        listed = ", ".join(f"{name} is {address}" for name, address in addresses.items())
        return [
            Error(
                f"Broker, channel layer and delivery use different servers: {listed}.",
                hint="Give all three the same host, port and database; else prompts or replies get lost.",
                id="generation.E002",
            )
        ]
    return []


@register("generation")
def check_models(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterable[CheckMessage]:
    try:
        models = conf.models()
    except ValueError as error:
        return [Error(f"GENERATION_MODELS: {error}.", hint=_MODELS_HINT, id="generation.E003")]
    if not models:
        return [Error("GENERATION_MODELS names no model.", hint=_MODELS_HINT, id="generation.E003")]
    default = conf.default_model()
    if default not in models:
        return [
            Error(
                f"GENERATION_DEFAULT_MODEL is {default!r}, which GENERATION_MODELS doesn't name.",
                hint=f"One of: {', '.join(models)}.",
                id="generation.E004",
            )
        ]
    return []


_MODELS_HINT = "Models are `name=source?option=value&…`, separated by blanks."


def _layer() -> dict[str, Any]:
    layers = getattr(settings, "CHANNEL_LAYERS", None) or {}
    layer: dict[str, Any] = layers.get("default") or {}
    return layer
