"""Settings composed from the environment; `base` holds those that no variable changes.

A variable of `criticizer.environment.variables` that is not composed into others here becomes the
setting of the same name.
"""

from __future__ import annotations

import os
import secrets
from typing import Any
from urllib.parse import urlsplit

import django_stubs_ext
from cryptography.fernet import Fernet

from criticizer.db import embedded
from criticizer.environment import WORK_DIR, dotenv, variables
from criticizer.environment.parsers import without_password
from criticizer.environment.reader import Environment, generated_secret
from criticizer.environment.secret import Secret
from criticizer.observability import logging
from criticizer.settings.base import *  # noqa: F403
from criticizer.storage import artifact_storages

django_stubs_ext.monkeypatch()

dotenv.load(WORK_DIR / ".env", os.environ)  # does not override what is already set
env = Environment(os.environ)
values = variables.read(env)

# -- data directory, database, generated secrets ----------------------------------------------

DATA_DIR = values.pop("CRITICIZER_DATA_DIR")
MAILDIR = DATA_DIR / "mail"
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns where it is missing

_database = values.pop("DATABASE_URL")
DATABASE_OWNER = values.pop("DATABASE_OWNER_URL")  # what `migrate` connects as: docs/rotation.md
_generated = {
    "SECRET_KEY": DATA_DIR / "secrets" / "secret_key",
    "ARTIFACT_KEYS": DATA_DIR / "secrets" / "artifact_key",
}
EMBEDDED_DATABASE = not _database
if EMBEDDED_DATABASE:
    _database, DATABASE_OWNER = embedded.django_settings(DATA_DIR), {"USER": embedded.OWNER}
SECRET_KEY: str = values.pop("SECRET_KEY") or generated_secret(
    _generated["SECRET_KEY"], lambda: secrets.token_urlsafe(64)
)
SECRET_KEY_FALLBACKS: list[str] = values.pop("SECRET_KEY_FALLBACKS")
if values.pop("ARTIFACT_KEYS"):
    ARTIFACT_KEYS = variables.secret(env, "ARTIFACT_KEYS")
else:
    generated_secret(_generated["ARTIFACT_KEYS"], lambda: Fernet.generate_key().decode())
    ARTIFACT_KEYS = Secret("ARTIFACT_KEYS", lambda: [_generated["ARTIFACT_KEYS"].read_text().strip()])
_connection = {**DATABASE_CONNECTION, **_database.get("OPTIONS", {})}  # noqa: F405
DATABASES = {
    "default": {
        **_database,
        # One connection per thread for its whole life: a connection per task costs 3.8 times the throughput.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        # A cursor on the server would stay on the session that the pooler gives to another client.
        "DISABLE_SERVER_SIDE_CURSORS": values["DATABASE_POOLER"] == "transaction",
        "OPTIONS": _connection,
    }
}
APPLICATION_ROLE = DATABASES["default"]["USER"]  # `migrate` grants it the rights of web and workers
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    **artifact_storages(values, DATA_DIR),
}
values = {name: value for name, value in values.items() if not name.startswith("ARTIFACT_S3_")}
# For `manage.py secrets_status`; never a value.
SECRET_SOURCES = [
    env.source_of(name, _generated.get(name))
    for name, variable in variables.VARIABLES.items()
    if variable.is_secret
]

# -- web --------------------------------------------------------------------------------------

BASE_URL: str = values.pop("BASE_URL")
_base_url = urlsplit(BASE_URL)
BEHIND_TLS = _base_url.scheme == "https"
ALLOWED_HOSTS = values.pop("ALLOWED_HOSTS") or ["localhost", "127.0.0.1", "[::1]", _base_url.hostname]
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = BEHIND_TLS
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
SILENCED_SYSTEM_CHECKS = ["security.W008"]  # SECURE_SSL_REDIRECT: the proxy in front redirects
if BEHIND_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    # Browsers accept these names from this very host over TLS only.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-criticizer-session", "__Host-criticizer-csrf"
else:
    # On plain HTTP these would repeat what criticizer.W012 says of BASE_URL.
    SILENCED_SYSTEM_CHECKS += ["security.W004", "security.W012", "security.W016"]
REST_FRAMEWORK = {
    **REST_FRAMEWORK,  # noqa: F405
    "DEFAULT_THROTTLE_RATES": {"api_key": values.pop("API_THROTTLE")},
}
LOGGING = logging.django_logging(values.pop("LOG_LEVEL"))

# -- reviews and deliveries -------------------------------------------------------------------

if values["LLM_REQUIRED"] is None:
    values["LLM_REQUIRED"] = values["LLM_PROVIDER"] != "none"
values.pop("LLM_API_KEY")
LLM_API_KEYS = variables.secret(env, "LLM_API_KEY")
REDACTION_POLICY: dict[str, object] = {
    "emails": values.pop("REDACT_EMAILS"),
    "internal_domains": values.pop("INTERNAL_DOMAINS"),
    "internal_nets": values.pop("INTERNAL_NETWORKS"),
}
SMTP_PORT = values.pop("SMTP_PORT") or {"none": 25, "starttls": 587, "tls": 465}[values["SMTP_SECURITY"]]
# When a call in flight counts as lost with its worker.
CALL_SECONDS = max(values["LLM_TIMEOUT_SECONDS"], 120) + 30

# -- work -------------------------------------------------------------------------------------

_workers = values.pop("WORKERS")
CLAIM_BATCH = _workers  # rows leased by one claim
Q_CLUSTER = {
    **Q_CLUSTER,  # noqa: F405
    "workers": _workers,
    # Prefetch stays small: it goes before others' work that is due later, delays a clean stop, and its
    # leases are already running.
    "bulk": CLAIM_BATCH,
    "queue_limit": CLAIM_BATCH,
}
# Calls to receivers hold all of these but one (`receivers`): with four, one slot each is for slow receivers,
# for others of their requesters, and for all other requesters.
Q_CLUSTER["ALT_CLUSTERS"]["notify"] = {"workers": max(4, _workers)}

# The other secrets are read when they are used; Django itself takes SECRET_KEY, DATABASES and STORAGES.
values.pop("POSTMARK_WEBHOOK_AUTH")
POSTMARK_WEBHOOK_AUTH = variables.secret(env, "POSTMARK_WEBHOOK_AUTH", lambda login: login.partition(":")[2])
IMAP_ARCHIVE_URL = without_password(values.pop("IMAP_ARCHIVE_URL"))
IMAP_ARCHIVE_PASSWORD = variables.archive_password(env)
for _name in [name for name in values if variables.VARIABLES[name].is_secret]:
    del values[_name]
    if not _name.endswith("_NEXT"):
        globals()[_name] = variables.secret(env, _name)
globals().update(values)
del values, env  # but for `Secret`, nothing holds a value
