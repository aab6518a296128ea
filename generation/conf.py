"""Settings of the app, read from `django.conf.settings` at each call, each with a default.

A host site needs `INSTALLED_APPS`, `REDIS_URL`, `CHANNEL_LAYERS` and a Celery app, and nothing else. This
module never reads the environment; that is the site's business.
"""

from pathlib import Path
from typing import Any

from django.conf import settings

from generation.engine.spec import ModelSpec, parse_models

DEFAULTS: dict[str, Any] = {
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "GENERATION_MODELS": "mock=mock:",
    "GENERATION_DEFAULT_MODEL": "",
    "GENERATION_MAX_QUEUE_SIZE": 1000,
    "GENERATION_MAX_WAIT_SECONDS": 3600.0,
    "GENERATION_MAX_JOBS_PER_USER": 20,
    "GENERATION_MAX_PROMPT_CHARS": 100_000,
    "GENERATION_MAX_NEW_TOKENS": 2048,
    "GENERATION_MESSAGES_PER_MINUTE": 60,
    "GENERATION_JOB_TIMEOUT_SECONDS": 3600.0,
    "GENERATION_LEASE_SECONDS": 10.0,
    "GENERATION_CANCEL_ON_DISCONNECT_SECONDS": None,
    "GENERATION_RETENTION_DAYS": None,
    "GENERATION_BENCHMARK_FILE": None,
}

LEASE_REFRESH_FRACTION = 5
"""A worker refreshes its row this many times within one lease."""


def _value(name: str) -> Any:
    return getattr(settings, name, DEFAULTS[name])


def redis_url() -> str:
    return str(_value("REDIS_URL"))


def models() -> dict[str, ModelSpec]:
    """Every configured model by its name, in the order of the setting."""
    return {spec.name: spec for spec in parse_models(_value("GENERATION_MODELS"))}


def default_model() -> str:
    """The name of the model a job gets that names none: the setting, else the first configured one."""
    return str(_value("GENERATION_DEFAULT_MODEL")) or next(iter(models()))


def max_queue_size() -> int:
    return int(_value("GENERATION_MAX_QUEUE_SIZE"))


def max_wait_seconds() -> float:
    return float(_value("GENERATION_MAX_WAIT_SECONDS"))


def max_jobs_per_user() -> int:
    return int(_value("GENERATION_MAX_JOBS_PER_USER"))


def max_prompt_chars() -> int:
    return int(_value("GENERATION_MAX_PROMPT_CHARS"))


def max_new_tokens() -> int:
    return int(_value("GENERATION_MAX_NEW_TOKENS"))


def messages_per_minute() -> int:
    return int(_value("GENERATION_MESSAGES_PER_MINUTE"))


def job_timeout_seconds() -> float:
    return float(_value("GENERATION_JOB_TIMEOUT_SECONDS"))


def cancel_on_disconnect_seconds() -> float | None:
    value = _value("GENERATION_CANCEL_ON_DISCONNECT_SECONDS")
    return None if value is None else float(value)


def retention_days() -> int | None:
    value = _value("GENERATION_RETENTION_DAYS")
    return None if value is None else int(value)


def benchmark_file() -> Path | None:
    """Where a benchmark keeps what it recommends; nowhere where the site names no file."""
    value = _value("GENERATION_BENCHMARK_FILE")
    return None if value is None else Path(value)


def lease_seconds() -> float:
    return float(_value("GENERATION_LEASE_SECONDS"))


def lease_refresh_seconds() -> float:
    return lease_seconds() / LEASE_REFRESH_FRACTION
