"""Django system checks: settings under which replies would be lost in silence are errors before anything starts.

Everything here is read from settings. Nothing is connected to; whether Redis answers is `health.py`'s business.
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
                hint=f"Use {LAYER!r}. The core layer drops messages without a word when a reader falls behind.",
                id="generation.E001",
            )
        ]
    config = layer.get("CONFIG") or {}
    faults = []
    if config.get("symmetric_encryption_keys"):
        faults.append("symmetric_encryption_keys")
    if config.get("serializer_format", "msgpack") != "msgpack":
        faults.append("serializer_format")
    if isinstance(config.get("hosts"), (str, bytes)) or len(config.get("hosts") or []) > 1:
        faults.append("hosts (a list of one)")
    if faults:
        return [
            Error(
                f"CHANNEL_LAYERS['default'] can't be published to by a Redis script: {', '.join(faults)}.",
                hint="One host, msgpack and no encryption: tokens are published by the script that stores them.",
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
                hint="Give all three the same host, port and database; otherwise prompts or replies get lost.",
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
