"""Composition root: settings from the environment (contract: Environment).

What no variable changes is in `fixed_settings`.
"""

from __future__ import annotations

import os
import secrets
from typing import Any
from urllib.parse import urlsplit

import django_stubs_ext
from cryptography.fernet import Fernet

from criticizer.db import embedded
from criticizer.environment import dotenv, parsers
from criticizer.environment.reader import (
    Environment,
    artifact_storages,
    concurrency_limits,
    generated_secret,
    git_repositories,
    git_watch,
    hosts,
    networks,
    rate_limits,
    wrong,
)
from criticizer.observability import logging
from criticizer.redaction import RedactionBlocked
from criticizer.redaction.policy import parse as parse_policy
from criticizer.settings.base import *  # noqa: F403
from criticizer.settings.base import BASE_DIR
from notifications.providers.email.imap_archive import ArchiveConfig
from notifications.providers.webhook.provider import decode_secret
from notifications.recipients import normalise
from reviews.sources.allowlist import AllowList
from reviews.sources.perforce.client import validate_port

django_stubs_ext.monkeypatch()

dotenv.load(BASE_DIR / ".env", os.environ)  # does not override what is already set
env = Environment(os.environ)

# -- data directory, database, generated secrets ----------------------------------------------

DATA_DIR = parsers.data_directory(env, BASE_DIR / "var")
EMBEDDED_DATABASE = not env.text("DATABASE_URL")

if EMBEDDED_DATABASE:
    _database: dict[str, Any] = embedded.django_settings(DATA_DIR)
    DATABASE_OWNER = {"USER": embedded.OWNER}
    SECRET_KEY = env.text("SECRET_KEY") or generated_secret(
        DATA_DIR / "secrets", "secret_key", lambda: secrets.token_urlsafe(64)
    )
    ARTIFACT_KEYS = env.words("ARTIFACT_KEYS") or [
        generated_secret(DATA_DIR / "secrets", "artifact_key", lambda: Fernet.generate_key().decode())
    ]
else:
    _database = parsers.database(env, "DATABASE_URL")
    # The role that owns the tables and migrates; web and workers then own nothing (docs/rotation.md).
    DATABASE_OWNER = parsers.owner_of_tables(env)
    SECRET_KEY = env.required(
        "SECRET_KEY", "a random text of at least 50 characters, such as openssl rand -base64 48 makes"
    )
    ARTIFACT_KEYS = env.words("ARTIFACT_KEYS")
    if not ARTIFACT_KEYS:
        raise wrong(
            "ARTIFACT_KEYS", "is not set", "a Fernet key (manage.py generate_artifact_key), newest first"
        )

env.checked("ARTIFACT_KEYS", lambda: [Fernet(key) for key in ARTIFACT_KEYS], "Fernet keys, newest first")
# Older keys whose signatures are still accepted while sessions and seals move to the new one.
SECRET_KEY_FALLBACKS = env.words("SECRET_KEY_FALLBACKS")

DATABASES = {
    "default": {
        **_database,
        # One connection per thread for its whole life: a connection per task costs 3.8 times the throughput.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,
            "application_name": "criticizer",
            **_database.get("OPTIONS", {}),
        },
    }
}
# What `migrate` grants the rights of web and workers to.
APPLICATION_ROLE = embedded.ROLE if EMBEDDED_DATABASE else DATABASES["default"]["USER"]

BROKER_URL = env.choice("BROKER_URL", "postgres", ("postgres",))

# -- web --------------------------------------------------------------------------------------

DEBUG = env.flag("DEBUG", default=False)
BASE_URL = env.url("BASE_URL", ("http", "https")) or "http://127.0.0.1:8000"
_base = urlsplit(BASE_URL)
ALLOWED_HOSTS = parsers.allowed_hosts(env, "ALLOWED_HOSTS", f"localhost,127.0.0.1,[::1],{_base.hostname}")
CSRF_TRUSTED_ORIGINS = parsers.origins(env, "CSRF_TRUSTED_ORIGINS")
BEHIND_TLS = _base.scheme == "https"

STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns where it is missing
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    **artifact_storages(env, DATA_DIR),
}

SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = BEHIND_TLS
if BEHIND_TLS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
if BEHIND_TLS:
    # Browsers accept these names from this very host over TLS only.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-criticizer-session", "__Host-criticizer-csrf"
TRUSTED_PROXIES = networks(env, "TRUSTED_PROXIES")  # whose X-Forwarded-For is believed
# Behind plain HTTP on a trusted network these checks would only repeat what BASE_URL says.
SILENCED_SYSTEM_CHECKS = [] if BEHIND_TLS else ["security.W004", "security.W012", "security.W016"]
SILENCED_SYSTEM_CHECKS += ["security.W008"]  # SECURE_SSL_REDIRECT: the proxy in front redirects

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["reviews.api.auth.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["reviews.api.auth.HasRole"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["reviews.api.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "reviews.api.views.Pages",
    "DEFAULT_THROTTLE_CLASSES": ["reviews.api.auth.ApiKeyThrottle"],
    "DEFAULT_THROTTLE_RATES": {"api_key": parsers.rate(env, "API_THROTTLE", "6000/min")},
    "EXCEPTION_HANDLER": "reviews.api.errors.handle",
    "PAGE_SIZE": 50,
    "UNAUTHENTICATED_USER": None,
}

# -- sources ----------------------------------------------------------------------------------

DEPOT_ALLOW_LIST = env.words("DEPOT_ALLOW_LIST")
if not DEPOT_ALLOW_LIST:
    raise wrong(
        "DEPOT_ALLOW_LIST", "is not set", "depot prefixes such as //depot/projectA/...,//depot/libs/..."
    )
env.checked("DEPOT_ALLOW_LIST", lambda: AllowList(DEPOT_ALLOW_LIST), "prefixes such as //depot/projectA/...")
CHANGE_SOURCES = env.words("CHANGE_SOURCES", "perforce")
if not CHANGE_SOURCES or (unknown := set(CHANGE_SOURCES) - {"perforce", "git"}):
    problem = f"{', '.join(sorted(unknown))} is unknown" if CHANGE_SOURCES else "names no source"
    raise wrong("CHANGE_SOURCES", problem, "perforce, git or both")
GIT_REPOSITORIES = git_repositories(env)
GIT_EXECUTABLE = env.text("GIT_EXECUTABLE")
P4_EXECUTABLE = env.text("P4_EXECUTABLE")
P4PORT = env.text("P4PORT")
if P4PORT:
    env.checked("P4PORT", lambda: validate_port(P4PORT), "host:1666 or ssl:host:1666")
P4USER = parsers.p4_user(env, "P4USER")
P4TICKETS = parsers.absolute_path(env, "P4TICKETS")
P4TRUST = parsers.absolute_path(env, "P4TRUST")
P4_REPLICA = env.flag("P4_REPLICA", default=False)  # P4PORT may lag behind the server that runs the triggers
# Shelve events of one changelist within this time become one job.
SHELVE_DEBOUNCE_SECONDS = env.number("SHELVE_DEBOUNCE_SECONDS", 60, minimum=0, maximum=3600, whole=False)
SOURCE_POLL_SECONDS = env.integer("SOURCE_POLL_SECONDS", 300, minimum=0, maximum=86_400)  # 0: no poll
SOURCE_POLL_BACKFILL = env.integer("SOURCE_POLL_BACKFILL", 0, minimum=0, maximum=500)
GIT_WATCH = git_watch(env, GIT_REPOSITORIES)  # (repository, branch)

# -- review -----------------------------------------------------------------------------------

LLM_PROVIDER = env.choice("LLM_PROVIDER", "none", ("none", "openai", "anthropic"))
LLM_REQUIRED = env.flag("LLM_REQUIRED", default=LLM_PROVIDER != "none")
if LLM_REQUIRED and LLM_PROVIDER == "none":
    raise wrong("LLM_REQUIRED", "is on while no model is configured", "LLM_PROVIDER, or LLM_REQUIRED=false")
LLM_BASE_URL = env.url("LLM_BASE_URL", ("https", "http"))
LLM_MODEL = env.text("LLM_MODEL")
LLM_API_KEYS = [key for key in (env.header("LLM_API_KEY"), env.header("LLM_API_KEY_NEXT")) if key]
LLM_TIMEOUT_SECONDS = env.number("LLM_TIMEOUT_SECONDS", 120, minimum=1, maximum=3600, whole=False)
LLM_MAX_CONCURRENCY = env.integer("LLM_MAX_CONCURRENCY", 100, minimum=1, maximum=2000)
LLM_MAX_INPUT_TOKENS = env.integer("LLM_MAX_INPUT_TOKENS", 24_000, minimum=500, maximum=2_000_000)
if LLM_PROVIDER != "none" and not LLM_MODEL:
    raise wrong("LLM_MODEL", "is not set while LLM_PROVIDER is", "the model's name")
if LLM_PROVIDER == "openai" and not LLM_BASE_URL:
    raise wrong("LLM_BASE_URL", "is not set while LLM_PROVIDER is openai", "the server's URL up to /v1")
if LLM_PROVIDER == "anthropic" and not LLM_API_KEYS and not LLM_BASE_URL:
    raise wrong("LLM_API_KEY", "is not set while LLM_PROVIDER is anthropic", "the key of your account there")
REDACTION_POLICY: dict[str, object] = {
    "emails": env.flag("REDACT_EMAILS", default=False),
    "internal_domains": env.words("INTERNAL_DOMAINS"),
    "internal_nets": networks(env, "INTERNAL_NETWORKS"),
}
try:
    parse_policy(REDACTION_POLICY)
except RedactionBlocked:
    raise wrong(
        "INTERNAL_DOMAINS", "is not a list of domains", "domains such as corp.example.com,build.internal"
    ) from None

# -- delivery ---------------------------------------------------------------------------------

SMTP_HOST = parsers.host(env, "SMTP_HOST")
SMTP_SECURITY = env.choice("SMTP_SECURITY", "none", ("none", "starttls", "tls"))
SMTP_PORT = env.integer(
    "SMTP_PORT", {"none": 25, "starttls": 587, "tls": 465}[SMTP_SECURITY], minimum=1, maximum=65535
)
SMTP_USER = env.text("SMTP_USER")
SMTP_PASSWORD = env.text("SMTP_PASSWORD")
SMTP_PASSWORD_NEXT = env.text("SMTP_PASSWORD_NEXT")  # tried when the first is refused
MAIL_FROM = parsers.mail_address(env, "MAIL_FROM", "criticizer@localhost", display_name=True)
MAILDIR = DATA_DIR / "mail"
# What it is where it is unset: criticizer.mail.
MAIL_PROVIDER = env.choice("MAIL_PROVIDER", "", ("", "smtp", "maildir", "resend", "postmark"))
IMAP_ARCHIVE_URL = env.text("IMAP_ARCHIVE_URL")  # the mailbox that answers for what SMTP sent
IMAP_ARCHIVE_ADDRESS = parsers.mail_address(env, "IMAP_ARCHIVE_ADDRESS")  # delivers into that mailbox
if IMAP_ARCHIVE_URL or IMAP_ARCHIVE_ADDRESS:
    env.checked(
        "IMAP_ARCHIVE_URL",
        lambda: ArchiveConfig.parse(IMAP_ARCHIVE_URL, IMAP_ARCHIVE_ADDRESS),
        "imaps://user:password@host/Mailbox, its parts percent-encoded",
    )
    if not IMAP_ARCHIVE_ADDRESS:
        raise wrong("IMAP_ARCHIVE_ADDRESS", "is not a mail address", "the address of the archive mailbox")
RESEND_API_KEY = env.header("RESEND_API_KEY")
RESEND_API_KEY_NEXT = env.header("RESEND_API_KEY_NEXT")  # tried when the first is refused
RESEND_API_URL = env.url("RESEND_API_URL", ("https", "http")) or "https://api.resend.com/"
RESEND_WEBHOOK_SECRETS = env.words("RESEND_WEBHOOK_SECRETS")  # sign what Resend reports, newest first
POSTMARK_SERVER_TOKEN = env.header("POSTMARK_SERVER_TOKEN")
POSTMARK_SERVER_TOKEN_NEXT = env.header("POSTMARK_SERVER_TOKEN_NEXT")  # tried when the first is refused
POSTMARK_API_URL = env.url("POSTMARK_API_URL", ("https", "http")) or "https://api.postmarkapp.com/"
POSTMARK_WEBHOOK_AUTH = env.words("POSTMARK_WEBHOOK_AUTH")  # user:password of what Postmark reports
env.checked(
    "RESEND_WEBHOOK_SECRETS",
    lambda: [decode_secret(secret) for secret in RESEND_WEBHOOK_SECRETS],
    "what Resend shows for its webhook: whsec_ followed by base64",
)
if any(not all(item.partition(":")) for item in POSTMARK_WEBHOOK_AUTH):
    raise wrong("POSTMARK_WEBHOOK_AUTH", "is not user:password", "user:password, as in the webhook's URL")
for _provider, _variable, _value in (
    ("smtp", "SMTP_HOST", SMTP_HOST),
    ("resend", "RESEND_API_KEY", RESEND_API_KEY),
    ("postmark", "POSTMARK_SERVER_TOKEN", POSTMARK_SERVER_TOKEN),
):
    if _provider == MAIL_PROVIDER and not _value:
        raise wrong(_variable, f"is not set while MAIL_PROVIDER is {_provider}", "it, or another provider")
WEBHOOK_SECRETS = env.words("WEBHOOK_SECRETS")  # newest first, each signs; none: webhooks go unsigned
env.checked(
    "WEBHOOK_SECRETS",
    lambda: [decode_secret(secret) for secret in WEBHOOK_SECRETS],
    "whsec_ followed by base64, made with: echo whsec_$(openssl rand -base64 32)",
)
WEBHOOK_NOT_IDEMPOTENT = hosts(env, "WEBHOOK_NOT_IDEMPOTENT")  # their receivers do not deduplicate
SLACK_BOT_TOKEN = env.header("SLACK_BOT_TOKEN")
SLACK_BOT_TOKEN_NEXT = env.header("SLACK_BOT_TOKEN_NEXT")  # tried when the first is refused
SLACK_API_URL = env.url("SLACK_API_URL", ("https", "http")) or "https://slack.com/api"
SWARM_URL = env.url("SWARM_URL", ("https", "http"))
SWARM_USER = env.text("SWARM_USER")
SWARM_TICKET = env.header("SWARM_TICKET")
if SWARM_URL and not (SWARM_USER and SWARM_TICKET):
    raise wrong(
        "SWARM_URL", "is set without SWARM_USER and SWARM_TICKET", "both: a user's name and its p4 login -p"
    )
OUTBOUND_ALLOW = parsers.outbound(env, "OUTBOUND_ALLOW")
DEFAULT_RECIPIENTS = env.words("DEFAULT_RECIPIENTS")
DELIVERY_AUDIT_SECONDS = env.integer("DELIVERY_AUDIT_SECONDS", 300, minimum=0, maximum=86_400)  # 0: no audit
env.checked(
    "DEFAULT_RECIPIENTS",
    lambda: [normalise(recipient) for recipient in DEFAULT_RECIPIENTS],
    "recipients such as mail:ann@example.com,webhook:https://ci.example.com/hook",
)
# What people without an account here are shown: reviews.recipients.
UNKNOWN_RECIPIENTS = env.choice("UNKNOWN_RECIPIENTS", "named", ("named", "everything", "nothing"))

# -- limits -----------------------------------------------------------------------------------

ARTIFACT_RAW_TTL_DAYS = env.integer("ARTIFACT_RAW_TTL_DAYS", 7, minimum=1, maximum=7)
ARTIFACT_REDACTED_TTL_DAYS = env.integer("ARTIFACT_REDACTED_TTL_DAYS", 30, minimum=1, maximum=30)
REVIEW_SLA_SECONDS = env.integer("REVIEW_SLA_SECONDS", 1200, minimum=1, maximum=7 * 86_400)
DLQ_MAX_AGE_DAYS = env.integer("DLQ_MAX_AGE_DAYS", 7, minimum=1, maximum=3650)
DLQ_MAX_SIZE = env.integer("DLQ_MAX_SIZE", 10_000, minimum=1, maximum=10_000_000)
DLQ_ALERT_PER_DAY = env.integer("DLQ_ALERT_PER_DAY", 100, minimum=1, maximum=1_000_000)
# Who is told of escalations, of too many dead letters and of stopped batches.
OPERATOR_ALERTS = env.words("OPERATOR_ALERTS")
env.checked(
    "OPERATOR_ALERTS",
    lambda: [normalise(recipient) for recipient in OPERATOR_ALERTS],
    "recipients such as mail:ops@example.com,webhook:https://ops.example.com/hook",
)
# Letters in a replay batch from which on somebody else must approve it.
REPLAY_APPROVAL_ABOVE = env.integer("REPLAY_APPROVAL_ABOVE", 100, minimum=0, maximum=1_000_000)
# Operators may change a dead letter's data before its replay, with a second person's approval.
DEADLETTER_EDIT = env.flag("DEADLETTER_EDIT", default=False)
RETRY_TIME_SCALE = env.number("RETRY_TIME_SCALE", 1, minimum=0.001, maximum=10, whole=False)
# Calls a second, and calls at once, by dependency or by the beginning of its name up to a colon.
RATE_LIMITS = rate_limits(env, "RATE_LIMITS")
CONCURRENCY_LIMITS = concurrency_limits(env, "CONCURRENCY_LIMITS")
CALL_SECONDS = max(LLM_TIMEOUT_SECONDS, 120) + 30  # when a call in flight counts as lost with its worker

# -- work -------------------------------------------------------------------------------------

_WORKERS = env.integer("WORKERS", 2, minimum=1, maximum=256)
CLAIM_BATCH = 2 * _WORKERS  # rows leased by one claim
Q_CLUSTER = {
    "name": "stages",
    "broker_class": "criticizer.queue.broker.OutboxBroker",
    "workers": _WORKERS,
    # Prefetch stays small: it delays a clean stop and its leases are already running.
    "bulk": CLAIM_BATCH,
    "queue_limit": CLAIM_BATCH,
    "timeout": 600,  # a far backstop; every call has a deadline of its own
    "retry": 660,
    "save_limit": -1,
    "ack_failures": True,
    "max_attempts": 1,
    "scheduler": False,  # at least 30 s late; the outbox's own timer is not
    "recycle": 5000,
    "guard_cycle": 0.5,
    "label": "Worker tasks",
    "log_level": "WARNING",
    "ALT_CLUSTERS": {
        "llm": {"workers": 1, "bulk": 1, "queue_limit": 1, "timeout": 3600, "retry": 3660, "recycle": 500}
    },
}

# Where each secret comes from, for `manage.py secrets_status`; never a value.
SECRET_SOURCES = [
    env.source_of("SECRET_KEY", DATA_DIR / "secrets" / "secret_key"),
    env.source_of("SECRET_KEY_FALLBACKS"),
    env.source_of("ARTIFACT_KEYS", DATA_DIR / "secrets" / "artifact_key"),
    *map(
        env.source_of,
        (
            "DATABASE_URL",
            "DATABASE_OWNER_URL",
            "LLM_API_KEY",
            "LLM_API_KEY_NEXT",
            "SMTP_PASSWORD",
            "SMTP_PASSWORD_NEXT",
            "IMAP_ARCHIVE_URL",
            "RESEND_API_KEY",
            "RESEND_API_KEY_NEXT",
            "RESEND_WEBHOOK_SECRETS",
            "POSTMARK_SERVER_TOKEN",
            "POSTMARK_SERVER_TOKEN_NEXT",
            "POSTMARK_WEBHOOK_AUTH",
            "WEBHOOK_SECRETS",
            "SLACK_BOT_TOKEN",
            "SLACK_BOT_TOKEN_NEXT",
            "SWARM_TICKET",
            "ARTIFACT_S3_SECRET_KEY",
        ),
    ),
]

LOGGING = logging.django_logging(env.choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")))
