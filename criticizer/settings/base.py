"""Settings that are the same in every installation.

The package adds those from the environment.
"""

from __future__ import annotations

from typing import Any

from criticizer.environment import CODE_DIR, IS_CHECKOUT

# -- pages and API ----------------------------------------------------------------------------

BASE_DIR = CODE_DIR
INSTALLED_APPS = [
    "criticizer",
    "reviews",
    "notifications",
    "deadletters",
    "criticizer.admin_site.site.SiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_q",
    "django_filters",
    "django_structlog",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "pghistory",
    "pgtrigger",
    "rest_framework",
]
MIDDLEWARE = [
    "criticizer.security.headers.HardeningMiddleware",
    "criticizer.observability.health.HealthMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "criticizer.db.availability.DatabaseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "criticizer.security.reauthentication.ReauthMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "criticizer.observability.request_log.RequestLog",
    "pghistory.middleware.HistoryMiddleware",
]
ROOT_URLCONF = "criticizer.urls"
WSGI_APPLICATION = "criticizer.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [CODE_DIR / "templates"] if IS_CHECKOUT else [],  # a wheel has them in criticizer/
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "reviews.web.context_processors.banners",
            ]
        },
    }
]
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # no collectstatic step: one command starts everything
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["reviews.api.auth.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["reviews.api.auth.HasRole"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["reviews.api.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "reviews.api.pagination.Pages",
    "DEFAULT_THROTTLE_CLASSES": ["reviews.api.throttling.ApiKeyThrottle"],
    "EXCEPTION_HANDLER": "reviews.api.errors.handle",
    "PAGE_SIZE": 50,
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Criticizer",
    "DESCRIPTION": "Self-hosted review of Perforce changelists, git commits and pull requests.",
    "VERSION": "1",
    "SERVE_PERMISSIONS": [],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    # Fields with their descriptions at once, rather than an example of their types.
    "SWAGGER_UI_SETTINGS": {
        "deepLinking": True,
        "defaultModelRendering": "model",
        "defaultModelExpandDepth": 2,
        "defaultModelsExpandDepth": 0,
    },
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    # Of choices that several components share.
    "ENUM_NAME_OVERRIDES": {
        "FindingStatusEnum": "reviews.states.FindingStatus",
        "AgentTaskStatusEnum": "reviews.states.AgentTaskStatus",
        "VerdictEnum": "reviews.api.schemas.VERDICT_CHOICES",
        "ClaimVerdictEnum": "reviews.api.scans.CLAIM_VERDICTS",
    },
}
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
COUNT_MILLISECONDS = 25  # for counting the rows of a list in the admin; then it shows "many"

# -- authentication and browser security ------------------------------------------------------

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
AUTHENTICATION_BACKENDS = ["criticizer.security.login_throttle.ThrottledBackend"]
# Views that need a recent password, and when: criticizer.security.reauthentication.
REAUTH_VIEWS = {
    **{
        f"admin:{table}_{view}": "any"
        for table in (
            "reviews_allowlistentry",
            "reviews_viewerscope",
            "reviews_skippedpath",
            "reviews_scantarget",
            "reviews_subscription",
            "reviews_apikey",
            "auth_user",
            "auth_group",
        )
        for view in ("add", "change", "delete")
    },
    "admin:auth_user_password_change": "any",
    "invite": "any",
    "invite-again": "post",
    "repositories": "post",
    "admin:reviews_reviewjob_accept_late": "any",
    "admin:reviews_artifact_content": "any",
    # Lists whose actions ask first: replay, discard, resolve, ignore, force, decide, lift.
    **{
        f"admin:{table}_changelist": "answer"
        for table in (
            "deadletters_deadletter",
            "deadletters_deadlettergroup",
            "notifications_delivery",
            "notifications_suppression",
            "criticizer_circuit",
            "reviews_agenttask",
        )
    },
    "admin:deadletters_deadletter_change": "post",
    "admin:deadletters_deadletter_replay": "post",
    "admin:deadletters_deadletter_discard": "any",
    "admin:deadletters_deadletter_give_up": "any",
    "admin:deadletters_deadletter_edit": "any",
    "admin:deadletters_letteredit_approve": "any",
    "admin:deadletters_deadlettergroup_fixed": "post",
    "admin:deadletters_replaybatch_submit": "post",
    "admin:deadletters_replaybatch_approve": "any",
    "admin:deadletters_replaybatch_refuse": "any",
    "admin:deadletters_replaybatch_resume": "any",
    "admin:deadletters_replaybatch_cancel": "any",
    "admin:reviews_apikey_changelist": "post",
    "admin:criticizer_circuit_change": "post",
    "admin:auth_user_changelist": "post",
    "admin:auth_group_changelist": "post",
}
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "reviews:list"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_HTTPONLY = True  # forms carry the token; no script of ours reads it
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = False  # TLS ends at the proxy in front
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}

# -- work -------------------------------------------------------------------------------------

# Stage name -> (function, queue). Import-checked at start (criticizer.E002).
STAGES = {
    "fetch": ("reviews.stages.fetch.run", "stages"),
    "llm": ("reviews.stages.llm.run", "llm"),
    "notify": ("reviews.stages.notify.run", "notify"),  # a slow receiver delays no fetch
}
# What django-q2 calls for a message of each type; `drive` claims its messages itself.
TASKS = {
    "run_stage": "reviews.tasks.run_stage",
    "drive": "reviews.tasks.drive",
    "poll_sources": "reviews.tasks.poll_sources",
    "poll_hosts": "reviews.tasks.poll_hosts",
    "start_scans": "reviews.tasks.start_scans",
    "replay_batch": "deadletters.batches.worker.run_message",
    "operator_alert": "notifications.alerts.run_message",
    "audit_deliveries": "reviews.tasks.audit_deliveries",
    "tell_check_runs": "reviews.tasks.tell_check_runs",
}
DRIVEN_QUEUES = {"llm"}  # one worker drives many stages at once with asyncio
DEADLETTER_RECOVERY = "reviews.replay.adapter.JobRecovery"
DELIVERY_JOBS = "reviews.replay.delivery_resolution.DeliveryJobs"
CIRCUIT_CACHE_SECONDS = 0.5  # how long a process trusts that a closed circuit is closed
WEB_BACKGROUND = "reviews.intake.kept_requests.watch"  # a thread of each web process
MAINTENANCE_SECONDS = 600  # a function that takes longer counts as hanging
# Called every 30 s, in one cluster at a time: find lost work, delete what has expired.
MAINTENANCE = [
    "reviews.config.record_ceiling",
    "reviews.pipeline.sweep",
    "reviews.pipeline.circuit_alerts.tell_outlasting",
    "reviews.pipeline.circuit_alerts.tell_refused",
    "reviews.pipeline.promotion_alerts.tell_promotion",
    "reviews.pipeline.expire_overdue",
    "reviews.agents.expire.sweep",
    "criticizer.resilience.health_checks.maintain",
    "reviews.artifacts.store.delete_expired",
    "reviews.config.delete_unused_mirrors",
    "reviews.stages.depot_scan.delete_left",
    "criticizer.security.expired_copies.empty_expired",
    "reviews.artifacts.integrity.verify_round",
    "reviews.audit.hash_chain.seal_all",
    "reviews.intake.source_events.delete_expired",
    "reviews.intake.pull_requests.delete_expired",
    "reviews.intake.polling.ensure",
    "reviews.intake.host_poll.ensure",
    "reviews.intake.scan_schedule.ensure",
    "deadletters.batches.worker.ensure",
    "deadletters.edits.edit_requests.refuse_stale",
    "deadletters.retention.policy.maintain",
    "deadletters.alerts.ensure",
    "reviews.replay.delivery_audit.ensure",
    "reviews.check_runs.ensure",
    "reviews.token_ledger.maintain",
    "reviews.dashboard.rollup.roll_up",
]

# A server whose machine is gone closes no connection: without limits, a statement to it waits for 15 minutes.
# A server that is alive acknowledges within milliseconds, however long its statement takes.
DATABASE_CONNECTION: dict[str, Any] = {
    "application_name": "criticizer",
    "connect_timeout": 5,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 4000,
}

Q_CLUSTER: dict[str, Any] = {
    "name": "stages",
    "broker_class": "criticizer.queue.broker.OutboxBroker",
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

# -- logs and error reports --------------------------------------------------------------

LOGGING_CONFIG = "criticizer.observability.logging.configure"
DEFAULT_EXCEPTION_REPORTER = "criticizer.security.error_reporting.MaskingReporter"
