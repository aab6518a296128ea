"""All settings of the site. It alone reads the environment; each variable is in the README's table."""

import logging
from pathlib import Path
from typing import cast

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from chatsite import environment as env
from generation import keepalive
from generation.engine.spec import parse_models

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = env.VAR

DEBUG = env.flag("DEBUG")
LOCAL_MODE = env.flag("CHATSITE_LOCAL")
SECRET_KEY = env.text("SECRET_KEY")
if not SECRET_KEY:
    if not DEBUG:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set. Set it, or run `python manage.py up`, which makes one for this folder."
        )
    SECRET_KEY = "only-for-debugging"
ALLOWED_HOSTS = env.names("ALLOWED_HOSTS") or (["127.0.0.1", "localhost", "[::1]"] if DEBUG else [])
CSRF_TRUSTED_ORIGINS = env.names("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "daphne",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "generation",
    "chatsite.accounts",
    "chatsite.chat",
    "chatsite.local",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "chatsite.urls"
ASGI_APPLICATION = "chatsite.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


# A host that was cut off hears of it soon, and the server soon ends its transaction, which may hold the line's lock.
_POSTGRESQL = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "options": "-c idle_in_transaction_session_timeout=10s -c tcp_user_timeout=10s"
    " -c tcp_keepalives_idle=10s -c tcp_keepalives_interval=5s -c tcp_keepalives_count=3",
}


def _database(url: str) -> dict[str, object]:
    config: dict[str, object] = dict(dj_database_url.parse(url, conn_max_age=0))
    if config["ENGINE"] == "django.db.backends.sqlite3":
        # IMMEDIATE: a transaction that reads first and writes later fails at once under DEFERRED, whatever the timeout.
        config["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
        # In memory each thread would have a database of its own.
        config["TEST"] = {"NAME": f"{config['NAME']}.test"}
    elif config["ENGINE"] == "django.db.backends.postgresql":
        # What the URL says (`?connect_timeout=2`) has precedence.
        config["OPTIONS"] = _POSTGRESQL | cast(dict[str, object], config.get("OPTIONS", {}))
    return config


DATABASE_URL = env.checked("DATABASE_URL", f"sqlite:///{VAR / 'db.sqlite3'}", _database)
DATABASES = {"default": _database(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:6379/0")
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, **keepalive.options(REDIS_URL)}]},
    }
}

CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "gpu"
CELERY_TASK_SERIALIZER = "json"
CELERY_WORKER_SEND_TASK_EVENTS = True
# The limit is exact and waiting messages stay in Redis for whichever worker is free.
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Early acknowledgement: a busy worker with late acknowledgement dies with its Redis. Leases bring jobs back instead.
CELERY_TASK_ACKS_LATE = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "socket_keepalive_options": keepalive.TCP_OPTIONS,
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "sesame.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
SESAME_ONE_TIME = True
SESAME_MAX_AGE = 24 * 3600
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/accounts/login/"
# Cookies know no port: two sites on one host would sign each other's people out.
PORT = env.integer("CHATSITE_PORT", 0, minimum=0)
SESSION_COOKIE_NAME = f"sessionid_{PORT}" if PORT else "sessionid"
CSRF_COOKIE_NAME = f"csrftoken_{PORT}" if PORT else "csrftoken"
SESSION_COOKIE_SAMESITE = "Lax"

STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "chatsite.static_storage.ModuleManifestStorage"},
}
if DEBUG:
    STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "require-trusted-types-for": ["'script'"],
        "trusted-types": ["tokenline"],
    },
    "EXCLUDE_URL_PREFIXES": ["/admin/"],
}
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"


def _is_news(record: logging.LogRecord) -> bool:
    """Whoever asks a health page reads the answer; the log needn't repeat each one."""
    request = getattr(record, "request", None)
    return not (request is not None and request.path.startswith("/health/"))


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"news": {"()": "django.utils.log.CallbackFilter", "callback": _is_news}},
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    # Django's own handlers would keep errors back outside of debugging.
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.request": {"filters": ["news"]},
    },
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ja", "日本語")]
LOCALE_PATHS = [BASE_DIR / "chatsite" / "locale"]
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_SAMESITE = "Lax"
USE_TZ = True
TIME_ZONE = "UTC"

GENERATION_MODELS = env.checked("GENERATION_MODELS", "smollm2=builtin:smollm2-135m", parse_models)
GENERATION_DEFAULT_MODEL = env.text("GENERATION_DEFAULT_MODEL")
GENERATION_MAX_QUEUE_SIZE = env.integer("GENERATION_MAX_QUEUE_SIZE", 1000)
GENERATION_MAX_WAIT_SECONDS = env.seconds("GENERATION_MAX_WAIT_SECONDS", 3600.0, minimum=1)
GENERATION_MAX_JOBS_PER_USER = env.integer("GENERATION_MAX_JOBS_PER_USER", 20)
GENERATION_MAX_PROMPT_CHARS = env.integer("GENERATION_MAX_PROMPT_CHARS", 100_000)
GENERATION_MAX_NEW_TOKENS = env.integer("GENERATION_MAX_NEW_TOKENS", 2048)
GENERATION_MESSAGES_PER_MINUTE = env.integer("GENERATION_MESSAGES_PER_MINUTE", 60)
GENERATION_CANCEL_ON_DISCONNECT_SECONDS = env.seconds("GENERATION_CANCEL_ON_DISCONNECT_SECONDS", None)
GENERATION_JOB_TIMEOUT_SECONDS = env.seconds("GENERATION_JOB_TIMEOUT_SECONDS", 3600.0, minimum=1)
GENERATION_LEASE_SECONDS = env.seconds("GENERATION_LEASE_SECONDS", 10.0, minimum=1)
GENERATION_RETENTION_DAYS = env.integer("GENERATION_RETENTION_DAYS", 0, minimum=0) or None
GENERATION_FLOWER_URL = env.text("CHATSITE_FLOWER_URL")
GENERATION_BENCHMARK_FILE = VAR / "benchmark.json"
