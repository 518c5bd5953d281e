"""Settings: one file, read from the environment (or a `.env` file beside manage.py).

Every GPUJOBS_* name is listed in README.md; a test compares the two.
"""

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import environ
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()
env.read_env(env("GPUJOBS_ENV_FILE", default=str(BASE_DIR / ".env")))
# Logs, artifacts and the SQLite file are for us and our group, not for every user.
os.umask(0o027)

# --- Who we are and where things lie -------------------------------------------------

DATA_ROOT = Path(env("GPUJOBS_DATA_ROOT", default=str(BASE_DIR / "var"))).resolve()
DATA_ROOT.mkdir(mode=0o750, parents=True, exist_ok=True)
# What a running job writes into. Apart from DATA_ROOT only where the process
# runner's unprivileged user could not reach it.
RUN_ROOT = Path(env("GPUJOBS_RUN_ROOT", default=str(DATA_ROOT / "run"))).resolve()
NODE_NAME = env("GPUJOBS_NODE", default=socket.gethostname().split(".")[0])

SECRET_KEY = env("GPUJOBS_SECRET_KEY", default="")
if len(SECRET_KEY) < 50:
    raise ImproperlyConfigured(
        "Set GPUJOBS_SECRET_KEY to a random text of at least 50 characters, for "
        "example: export GPUJOBS_SECRET_KEY=$(python3 -c 'import secrets; "
        "print(secrets.token_urlsafe(50))'). `make demo` makes one for you."
    )
DEBUG = env.bool("GPUJOBS_DEBUG", default=False)
ALLOWED_HOSTS = env.list("GPUJOBS_ALLOWED_HOSTS", default=["localhost", "127.0.0.1"])
# TLS is the shipped default; a first look over plain HTTP on loopback turns it off.
SECURE = env.bool("GPUJOBS_TLS", default=True)

# --- Scheduling and running ----------------------------------------------------------

RUNNER = env("GPUJOBS_RUNNER", default="docker")
INVENTORY = env("GPUJOBS_INVENTORY", default="nvml")
DOCKER_URL = env("GPUJOBS_DOCKER_URL", default="unix:///var/run/docker.sock")
# Never root. The process runner has no image in which another user could be known.
JOB_USER = env(
    "GPUJOBS_JOB_USER",
    default="65534:65534" if RUNNER == "process" else "10001:10001",
)
NETWORK = env("GPUJOBS_NETWORK", default="bridge")
# What any container of this host may have; rows of the database can only narrow it.
POLICY_FILE = Path(env("GPUJOBS_POLICY", default="/etc/gpujobs/policy.toml"))
ARTIFACT_CAP_MB = env.int("GPUJOBS_ARTIFACT_CAP_MB", default=51_200)
# What a job may write outside /artifacts and its volumes.
SCRATCH_CAP_MB = env.int("GPUJOBS_SCRATCH_CAP_MB", default=51_200)
LOG_CAP_MB = env.int("GPUJOBS_LOG_CAP_MB", default=16)
HEADROOM_MB = env.int("GPUJOBS_HEADROOM_MB", default=0)
FOREIGN_TOLERANCE_MB = env.int("GPUJOBS_FOREIGN_TOLERANCE_MB", default=512)
# A point of priority for so many hours at the head of a lane of the queue.
AGING_H = env.float("GPUJOBS_AGING_H", default=6.0)
# After so many days what an owner used counts half in the fair share.
HALF_LIFE_D = env.float("GPUJOBS_HALF_LIFE_D", default=7.0)
# How many blocked jobs, from the head of the line on, get a reservation.
RESERVATIONS = env.int("GPUJOBS_RESERVATIONS", default=1)
# A node that was not heard of for so long is lost, and its jobs go elsewhere.
NODE_LOST_S = env.int("GPUJOBS_NODE_LOST_S", default=600)
KEEP_DECISIONS_D = env.int("GPUJOBS_KEEP_DECISIONS_D", default=14)
REGISTRATION = env("GPUJOBS_REGISTRATION", default="closed")
MAIL_DOMAINS = env.list("GPUJOBS_MAIL_DOMAINS", default=[])
TRUSTED_PROXIES = env.list("GPUJOBS_TRUSTED_PROXIES", default=[])
PROXY_HEADER = env("GPUJOBS_PROXY_HEADER", default="")

# --- Django --------------------------------------------------------------------------

INSTALLED_APPS = [
    *("django.contrib.admin", "django.contrib.contenttypes", "django.contrib.sessions"),
    *("django.contrib.messages", "django.contrib.humanize"),
    *("whitenoise.runserver_nostatic", "django.contrib.staticfiles"),
    "rest_framework",
    "rest_framework_simplejwt.token_blacklist",
    "knox",
    "corsheaders",
    "django_filters",
    *("drf_spectacular", "drf_spectacular_sidecar"),
    "django_q",
    "jobs",
    # After ours, whose commands of the same name leave an audit record.
    "django.contrib.auth",
    "scheduler",
]
MIDDLEWARE = [
    "gpujobs.proxies.see_through_proxies",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "gpujobs.middleware.TellOfOutage",
    "gpujobs.middleware.remember_address",
    "gpujobs.proxies.log_in_by_proxy",
    "gpujobs.middleware.use_time_zone",
]
ROOT_URLCONF = "gpujobs.urls"
WSGI_APPLICATION = "gpujobs.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "gpujobs.context.site",
            ]
        },
    }
]
AUTH_USER_MODEL = "jobs.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "job-list"
LOGOUT_REDIRECT_URL = "login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"

# SQLite serves one machine with nothing to install; a team sets DATABASE_URL to
# PostgreSQL. A deferred BEGIN on SQLite is a livelock under load, hence IMMEDIATE.
DATABASES: dict[str, Any] = {
    "default": env.db("DATABASE_URL", default=f"sqlite:///{DATA_ROOT / 'gpujobs.db'}")
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    }
else:
    # A server that vanished is noticed, whatever its kernel still says.
    patience = {
        "connect_timeout": 3,
        "tcp_user_timeout": 10_000,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    given = DATABASES["default"].setdefault("OPTIONS", {})
    DATABASES["default"]["OPTIONS"] = {**patience, **given}
# Never 0: reconnecting costs django-q2's broker a factor of twelve.
DATABASES["default"] |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}

STATIC_URL = "/static/"
STATIC_ROOT = DATA_ROOT / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

# --- Security ------------------------------------------------------------------------

SECURE_SSL_REDIRECT = SECURE
SECURE_HSTS_SECONDS = 3600 * 24 * 30 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
# Origins of front ends that may use the API from a browser; with tokens, never cookies.
CORS_ALLOWED_ORIGINS = env.list("GPUJOBS_CORS_ORIGINS", default=[])
CORS_URLS_REGEX = r"^/api/v1/"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}

# --- API -----------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "jobs.api.access.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "jobs.api.access.WithinScopes",
    ],
    "DEFAULT_PARSER_CLASSES": ["jobs.api.parsers.StrictJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "jobs.api.pagination.Pages",
    "DEFAULT_FILTER_BACKENDS": ["jobs.api.filters.StrictFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "jobs.api.problems.handle",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "COERCE_DECIMAL_TO_STRING": False,
    "DEFAULT_THROTTLE_CLASSES": ["jobs.api.throttles.PerPerson"],
    # gpujobs.proxies has read X-Forwarded-For, of trusted proxies alone.
    "NUM_PROXIES": 0,
}
SIMPLE_JWT = {
    "ACCESS_TOKEN_LIFETIME": timedelta(minutes=15),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=7),
    "ROTATE_REFRESH_TOKENS": True,
    "BLACKLIST_AFTER_ROTATION": True,
    "CHECK_REVOKE_TOKEN": True,
}
KNOX_TOKEN_MODEL = "jobs.ApiToken"  # noqa: S105 - a model, no secret
# Its own table is replaced by ours; its migrations would make it all the same.
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {"TOKEN_PREFIX": "gpujobs_", "AUTH_HEADER_PREFIX": "Bearer"}
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU Jobs",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "Risk": "jobs.api.schema.RISK",
        "Oom": "jobs.api.schema.OOM",
    },
    "PREPROCESSING_HOOKS": ["jobs.api.schema.of_version_1"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "jobs.api.schema.with_problems",
    ],
}

# --- Task queue ----------------------------------------------------------------------

# A message is handed out once; who needs it done asks again (DESIGN section 2).
Q_CLUSTER = {
    "name": "gpujobs",
    "broker_class": "scheduler.queue.broker.TaskBroker",
    "workers": 4,
    # What was claimed and is not begun is nobody else's to run: as few as can be.
    "queue_limit": 1,
    "bulk": 1,
    "timeout": 600,
    "retry": 3600,  # of other brokers; less than the timeout is warned of
    "max_attempts": 1,
    "ack_failures": True,
    # Results are pickles: none is kept, so that none is ever read.
    "save_limit": -1,
    "scheduler": False,
    "guard_cycle": 1,
    "cache": "q",
    "label": "Background tasks",
    "ALT_CLUSTERS": {},
}
CACHES = {
    # Only throttles: all web processes count together.
    "default": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": DATA_ROOT / "cache",
        "OPTIONS": {"MAX_ENTRIES": 5000},
    },
    "q": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "q"},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django-q": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}
    },
}
