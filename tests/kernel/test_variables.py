"""Every variable: a wrong value stops the start, and the error says its name and what to set.

The settings are read anew in this process, from an environment of the test's own.
"""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from criticizer.environment import dotenv
from criticizer.environment.reader import Environment

# A complete installation: every variable is looked at.
COMPLETE = {
    "DATABASE_URL": "postgres://app:pw@127.0.0.1:1/nothing",
    "DATABASE_OWNER_URL": "postgres://owner:pw@127.0.0.1:1/nothing",
    "SECRET_KEY": "not-a-real-key-" * 4,
    "ARTIFACT_KEYS": "A" * 43 + "=",
    "ARTIFACT_STORAGE": "s3",
    "ARTIFACT_S3_BUCKET_LETTERS": "letters",
    "ARTIFACT_S3_BUCKET_RAW": "raw",
    "ARTIFACT_S3_BUCKET_REDACTED": "redacted",
    "DEPOT_ALLOW_LIST": "//depot/main/...",
    "CHANGE_SOURCES": "perforce,git",
    "GIT_REPOSITORIES": "app=/srv/git/app.git",
    "LLM_PROVIDER": "openai",
    "LLM_BASE_URL": "http://model.internal:8000/v1",
    "LLM_MODEL": "m",
    "IMAP_ARCHIVE_URL": "imaps://u:p@mail.example.com/Archive",
    "IMAP_ARCHIVE_ADDRESS": "archive@example.com",
    "SWARM_URL": "https://swarm.example.com",
    "SWARM_USER": "criticizer",
    "SWARM_TICKET": "0123",
}
_URLS = ["example.com", "ftp://example.com", "https://", "https://a:port/", "https://[::1/", "https://a b/"]
_NUMBERS = ["abc", "1.5", "-1", "1e99", "nan", "99999999999999999999"]
_RECIPIENTS = ["pager:5", "Ann <ann@example.com>", "ann"]
_LIMITS = ["llm:openai", "llm:openai=x", "disk=1/s", "llm:openai=0/s"]
WRONG: Mapping[str, list[str]] = {
    "ALLOWED_HOSTS": ["https://criticizer.example.com", "criticizer.example.com:443", "a b", "a/b"],
    "API_THROTTLE": ["abc", "6000", "0/min", "6000/fortnight", "-1/min"],
    "ARTIFACT_KEYS": ["", "abc", "A" * 43],
    "ARTIFACT_RAW_TTL_DAYS": [*_NUMBERS, "8", "0"],
    "ARTIFACT_REDACTED_TTL_DAYS": [*_NUMBERS, "31", "0"],
    "ARTIFACT_S3_BUCKET_LETTERS": ["", "redacted"],
    "ARTIFACT_S3_BUCKET_RAW": [""],
    "ARTIFACT_S3_BUCKET_REDACTED": ["", "raw"],
    "ARTIFACT_S3_ENDPOINT": _URLS,
    "ARTIFACT_STORAGE": ["gcs", "S3"],
    "BASE_URL": _URLS,
    "BROKER_URL": ["redis://127.0.0.1", "abc"],
    "CHANGE_SOURCES": ["svn", "git;perforce", ","],
    "CONCURRENCY_LIMITS": [*_LIMITS, "llm:openai=1/s"],
    "CRITICIZER_DATA_DIR": ["/dev/null", "/dev/null/below"],
    "CSRF_TRUSTED_ORIGINS": ["criticizer.example.com", "https://a/path", "ftp://a", "https://"],
    "DATABASE_OWNER_URL": ["abc", "mysql://owner:pw@h/db", "postgres://h/db", "postgres://u:p@h:port/db"],
    "DATABASE_URL": ["abc", "mysql://u:pw@h/db", "postgres://u:p@h:5432", "postgres://u:p@h:port/db"],
    "DEADLETTER_EDIT": ["maybe", "2"],
    "DEBUG": ["maybe", "2"],
    "DEFAULT_RECIPIENTS": _RECIPIENTS,
    "DELIVERY_AUDIT_SECONDS": _NUMBERS,
    "DEPOT_ALLOW_LIST": ["", "depot/main", "//depot/../...", "//...", "-//depot/main/..."],
    "DLQ_ALERT_PER_DAY": [*_NUMBERS, "0"],
    "DLQ_MAX_AGE_DAYS": [*_NUMBERS, "0"],
    "DLQ_MAX_SIZE": [*_NUMBERS, "0"],
    "GIT_REPOSITORIES": ["app", "app=relative", "a/b=/srv", "app=/srv,app=/srv2"],
    "GIT_WATCH": ["app", "app:..", "other:main", "app:"],
    "IMAP_ARCHIVE_ADDRESS": ["", "archive", "a b@example.com", "A <archive@example.com>"],
    "IMAP_ARCHIVE_URL": ["abc", "https://u:p@h/", "imaps://h/", "imaps://u:p@h:port/"],
    "INTERNAL_DOMAINS": ["a b", "https://corp.example.com", "corp_.example..com"],
    "INTERNAL_NETWORKS": ["abc", "10.0.0.0/33", "corp.example.com"],
    "LLM_API_KEY": ["two words", "schlüssel"],
    "LLM_API_KEY_NEXT": ["two words", "schlüssel"],
    "LLM_BASE_URL": [*_URLS, ""],
    "LLM_MAX_CONCURRENCY": [*_NUMBERS, "0"],
    "LLM_MAX_INPUT_TOKENS": [*_NUMBERS, "10"],
    "LLM_MODEL": [""],
    "LLM_PROVIDER": ["none               # none, openai", "OpenAI", "ollama"],
    "LLM_REQUIRED": ["maybe", "2"],
    "LLM_TIMEOUT_SECONDS": ["abc", "-1", "0", "nan", "inf"],
    "LOG_LEVEL": ["TRACE", "info"],
    "MAIL_FROM": ["joe", "joe@", "@a.example", "a@a.example, b@a.example", "a b@a.example", "Joe <joe>"],
    "MAIL_PROVIDER": ["pigeon"],
    "OPERATOR_ALERTS": _RECIPIENTS,
    "OUTBOUND_ALLOW": ["%%", "ci.internal:80", "10.0.0.0/33", "http://ci", "*.internal", "10.0.0.300"],
    "P4PORT": ["abc", "rsh:sh", "host:99999", "http://host:1666"],
    "P4TICKETS": ["p4tickets", "~/.p4tickets"],
    "P4TRUST": ["p4trust"],
    "P4USER": ["a b", "a@b", "-u"],
    "P4_REPLICA": ["maybe"],
    "POSTMARK_API_URL": _URLS,
    "POSTMARK_SERVER_TOKEN": ["two words"],
    "POSTMARK_SERVER_TOKEN_NEXT": ["two words"],
    "POSTMARK_WEBHOOK_AUTH": ["nothing", "robot:", ":hunter2"],
    "RATE_LIMITS": [*_LIMITS, "llm:openai=5", "llm:openai=5/d"],
    "REDACT_EMAILS": ["maybe"],
    "REPLAY_APPROVAL_ABOVE": _NUMBERS,
    "RESEND_API_KEY": ["two words"],
    "RESEND_API_KEY_NEXT": ["two words"],
    "RESEND_API_URL": _URLS,
    "RESEND_WEBHOOK_SECRETS": ["abc", "whsec_", "whsec_not base64"],
    "RETRY_TIME_SCALE": ["abc", "0", "-1", "nan", "11"],
    "REVIEW_SLA_SECONDS": [*_NUMBERS, "0"],
    "SECRET_KEY": [""],
    "SHELVE_DEBOUNCE_SECONDS": ["abc", "-1", "nan", "3601"],
    "SLACK_API_URL": _URLS,
    "SLACK_BOT_TOKEN": ["xoxb two"],
    "SLACK_BOT_TOKEN_NEXT": ["xoxb two"],
    "SMTP_HOST": ["smtp://mail.example.com", "mail.example.com:25", "mail example", "ann@example.com"],
    "SMTP_PORT": [*_NUMBERS, "0", "65536"],
    "SMTP_SECURITY": ["ssl", "TLS"],
    "SOURCE_POLL_BACKFILL": _NUMBERS,
    "SOURCE_POLL_SECONDS": _NUMBERS,
    "SWARM_TICKET": ["two words"],
    "SWARM_URL": _URLS,
    "TRUSTED_PROXIES": ["abc", "10.0.0.0/33", "proxy.example.com"],
    "UNKNOWN_RECIPIENTS": ["all"],
    "WEBHOOK_NOT_IDEMPOTENT": ["https://ci.example.com", "ci example"],
    "WEBHOOK_SECRETS": ["abc", "whsec_", "whsec_not base64", "whsec_bm90LWEtcmVhbC1zZWNyZXQ=,abc"],
    "WORKERS": [*_NUMBERS, "0"],
}  # fmt: skip
# Any line of text may be right here. Programs and SECRET_KEY's length are the system checks' business.
ANY_TEXT = {
    *("ARTIFACT_S3_ACCESS_KEY", "ARTIFACT_S3_REGION", "ARTIFACT_S3_SECRET_KEY"),
    *("GIT_EXECUTABLE", "P4_EXECUTABLE", "SECRET_KEY_FALLBACKS"),
    *("SMTP_PASSWORD", "SMTP_PASSWORD_NEXT", "SMTP_USER", "SWARM_USER"),
}
VARIABLES = sorted({*WRONG, *ANY_TEXT})
SECRETS = {source.name for source in settings.SECRET_SOURCES}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment that the settings are read from; no `.env` file beside it."""
    values = {"PATH": os.environ["PATH"], "CRITICIZER_DATA_DIR": str(tmp_path), **COMPLETE}
    monkeypatch.setattr(os, "environ", values)
    monkeypatch.setattr(dotenv, "load", lambda path, into: None)
    return values


def started() -> dict[str, Any]:
    """Return the settings as a start would have them now."""
    return runpy.run_path(str(settings.BASE_DIR / "criticizer" / "settings" / "__init__.py"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the variables that are read while the fixture is in use."""
    names: set[str] = set()
    read = Environment._raw

    def noting(self: Environment, name: str) -> str | None:
        names.add(name)
        return read(self, name)

    monkeypatch.setattr(Environment, "_raw", noting)
    return names


def test_a_complete_environment_starts_and_every_variable_of_it_is_known_here_and_in_the_example(
    environment: dict[str, str], asked: set[str]
) -> None:
    assert started()["MAIL_FROM"] == "criticizer@localhost"
    assert asked == set(VARIABLES)
    example = (settings.BASE_DIR / ".env.example").read_text()
    assert set(re.findall(r"^#?([A-Z0-9_]+)=", example, re.MULTILINE)) == asked


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_a_wrong_value_stops_the_start(environment: dict[str, str], name: str, value: str) -> None:
    environment[name] = value
    with pytest.raises(ImproperlyConfigured, match=rf"^{name}: .+\. Set .+\.$") as refused:
        started()
    if name in SECRETS and value:
        assert value not in str(refused.value).partition(". Set ")[0]


@pytest.mark.parametrize("name", VARIABLES)
def test_a_line_break_or_an_unreadable_file_stops_the_start(environment: dict[str, str], name: str) -> None:
    environment[name] = "planted\nnonsense"
    with pytest.raises(ImproperlyConfigured, match=f"^{name}: holds line breaks.+Set ") as refused:
        started()
    assert "planted" not in str(refused.value)
    environment[f"{name}_FILE"] = environment.pop(name)
    with pytest.raises(ImproperlyConfigured, match=f"^{name}_FILE: the file cannot be read. Set "):
        started()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOWED_HOSTS", "*"),
        ("ALLOWED_HOSTS", ".example.com,localhost,[::1],127.0.0.1"),
        ("API_THROTTLE", "1000000/min"),
        ("BASE_URL", "http://[::1]:8000/"),
        ("CSRF_TRUSTED_ORIGINS", "https://*.example.com,http://127.0.0.1:8000"),
        ("DATABASE_URL", "postgresql://u:p%23w@db.internal/criticizer?sslmode=require"),
        ("DATABASE_URL", "postgres://u@/criticizer?host=/var/run/postgresql"),
        ("INTERNAL_DOMAINS", "*.corp.example.com,.build.internal"),
        ("MAIL_FROM", "Code review <review@buildhost>"),
        ("MAIL_FROM", '"Review, code" <review@example.com>'),
        ("MAIL_FROM", "criticizer@[192.0.2.1]"),
        ("OUTBOUND_ALLOW", "ci.internal,10.0.0.0/8,127.0.0.1,[::1],fd00::/8,buildhost"),
        ("P4USER", "svc-criticizer"),
        ("SMTP_HOST", "::1"),
        ("SMTP_HOST", "mail"),
        ("SMTP_PASSWORD", "$ecret # with 'all' \"sorts\""),
        ("WEBHOOK_SECRETS", "whsec_bm90LWEtcmVhbC1zZWNyZXQ=, whsec_YW5vdGhlciBvbmU="),
    ],
)
def test_what_is_right_starts(environment: dict[str, str], name: str, value: str) -> None:
    environment[name] = value
    found = started().get(name)
    assert not isinstance(found, str) or found == value


def test_a_hosted_model_needs_its_key_unless_a_gateway_holds_it(environment: dict[str, str]) -> None:
    environment.update({"LLM_PROVIDER": "anthropic", "LLM_BASE_URL": ""})
    with pytest.raises(ImproperlyConfigured, match="LLM_API_KEY: is not set while LLM_PROVIDER is anthropic"):
        started()
    environment["LLM_BASE_URL"] = "https://gateway.internal/"
    assert started()["LLM_PROVIDER"] == "anthropic"


def test_a_file_is_read_before_the_variable_itself(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "password").write_text("  $from # file\n")
    environment.update({"SMTP_PASSWORD": "other", "SMTP_PASSWORD_FILE": str(tmp_path / "password")})
    assert started()["SMTP_PASSWORD"] == "$from # file"
