"""The table of environment variables: each wrong value stops the start with its name.

The error also says what to set.
"""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from criticizer.codehosts.github import variables as github_variables
from criticizer.environment import dotenv, reference, variables
from criticizer.environment.reader import Environment
from criticizer.environment.variables import VARIABLES

# A complete installation, so that the rules about several variables apply.
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
    "DOCUMENT_SECTIONS": "7",
    "EMBEDDINGS_BASE_URL": "http://model.internal:8000/v1",
    "EMBEDDINGS_MODEL": "embed",
    "EMBEDDINGS_DIMENSIONS": "256",
    "EMBEDDINGS_API_KEY": "key-of-embeddings",
    "LLM_MODEL": "m",
    "LLM_FALLBACK_PROVIDER": "openai",
    "LLM_FALLBACK_BASE_URL": "https://models.example.com/v1",
    "LLM_FALLBACK_MODEL": "n",
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
    "AGENT_TASK_TIMEOUT_MINUTES": [*_NUMBERS, "0", "1441"],
    "ALLOWED_HOSTS": ["https://criticizer.example.com", "criticizer.example.com:443", "a b", "a/b"],
    "API_THROTTLE": ["abc", "6000", "0/min", "6000/fortnight", "-1/min"],
    "ARTIFACT_KEYS": ["", "abc", "A" * 43],
    "ARTIFACT_RAW_TTL_DAYS": [*_NUMBERS, "8", "0"],
    "MIRRORS_MAX_GB": [*_NUMBERS, "0"],
    "ARTIFACT_REDACTED_TTL_DAYS": [*_NUMBERS, "31", "0"],
    "ARTIFACT_S3_BUCKET_LETTERS": ["", "redacted"],
    "ARTIFACT_S3_BUCKET_RAW": [""],
    "ARTIFACT_S3_BUCKET_REDACTED": ["", "raw"],
    "ARTIFACT_S3_ENDPOINT": _URLS,
    "ARTIFACT_STORAGE": ["gcs", "S3"],
    "DATABASE_POOLER": ["session", "pgbouncer"],
    "BASE_URL": _URLS,
    "CHANGE_SOURCES": ["svn", "git;perforce", ","],
    "CONCURRENCY_LIMITS": [*_LIMITS, "llm:openai=1/s"],
    "CRITICIZER_DATA_DIR": ["/dev/null", "/dev/null/below"],
    "CSRF_TRUSTED_ORIGINS": ["criticizer.example.com", "https://a/path", "ftp://a", "https://"],
    "DATABASE_OWNER_URL": ["abc", "mysql://owner:pw@h/db", "postgres://h/db", "postgres://u:p@h:port/db",
                           "postgres://u:p@h1:1,h2/db"],
    "DATABASE_URL": ["abc", "mysql://u:pw@h/db", "postgres://u:p@h:5432", "postgres://u:p@h:port/db",
                     "postgres://u:p@h1,h2:5433/db", "postgres://u:p@h1:1,h2:port/db", "postgres://u:p@h1,,h2/db",
                     "postgres://u:p@h1:1,h2:65536/db", "postgres://u:p@h1,h2/db?target_session_attrs=writable",
                     "postgres://u:p@h1,h2/db?target_session_attrs=any",
                     "postgres://u:p@h/db?target_session_attrs=standby"],
    "DEADLETTER_EDIT": ["maybe", "2"],
    "DEBUG": ["maybe", "2"],
    "DEFAULT_RECIPIENTS": _RECIPIENTS,
    "DELIVERY_AUDIT_SECONDS": _NUMBERS,
    "DEPOT_ALLOW_LIST": ["", "depot/main", "//depot/../...", "//...", "-//depot/main/..."],
    "DLQ_ALERT_PER_DAY": [*_NUMBERS, "0"],
    "DLQ_MAX_AGE_DAYS": [*_NUMBERS, "0"],
    "DLQ_MAX_SIZE": [*_NUMBERS, "0"],
    "GITEA_REPOSITORIES": ["acme", "acme/a/b"],
    "GITEA_TOKEN": ["two words"],
    "GITEA_TOKEN_NEXT": ["two words"],
    "GITEA_URL": _URLS,
    "GITHUB_API_URL": _URLS,
    "GITHUB_APP_ID": ["abc", "0", "-1", "1.5", "Iv1.0123"],
    "GITHUB_APP_SLUG": ["My App", "-app", "app/x", "app[bot]"],
    "GITHUB_PRIVATE_KEY": ["abc", "-----BEGIN RSA PRIVATE KEY-----\\nabc\\n-----END RSA PRIVATE KEY-----"],
    "GITHUB_PRIVATE_KEY_NEXT": ["abc"],
    "GITHUB_REPOSITORIES": ["acme", "acme/a/b", "/a", "acme/", "https://github.com/acme/a", "a b/c"],
    "GITLAB_REPOSITORIES": ["acme", "acme//a", "acme/a b"],
    "GITLAB_TOKEN": ["two words"],
    "GITLAB_TOKEN_NEXT": ["two words"],
    "GITLAB_URL": _URLS,
    "GITLAB_WEBHOOK_SECRETS": ["whsec_not base64", "a token,whsec_"],
    "GIT_REPOSITORIES": ["app", "app=relative", "a/b=/srv", "app=/srv,app=/srv2"],
    "GIT_REFERENCES": [",", "main", "heads/*", "refs/", "refs/*/x", "refs/a..b", "refs/a//b", "refs/he?ds"],
    "GIT_WATCH": ["app", "app:", ":main", "app:-x", "app:a..b", "app:a//b", "app:a b", "app:@{1}", "app:..",
                  "other:main"],
    "IMAP_ARCHIVE_ADDRESS": ["", "archive", "a b@example.com", "A <archive@example.com>"],
    "IMAP_ARCHIVE_URL": ["abc", "https://u:p@h/", "imaps://h/", "imaps://u@h", "imaps://u:p@h:port/"],
    "INTERNAL_DOMAINS": ["a b", "https://corp.example.com", "corp_.example..com"],
    "INTERNAL_NETWORKS": ["abc", "10.0.0.0/33", "corp.example.com"],
    "LLM_API_KEY": ["two words", "schlüssel"],
    "LLM_API_KEY_NEXT": ["two words", "schlüssel"],
    "LLM_BASE_URL": [*_URLS, ""],
    "LLM_MAX_CONCURRENCY": [*_NUMBERS, "0"],
    "LLM_MAX_INPUT_TOKENS": [*_NUMBERS, "10"],
    "LLM_MAX_OUTPUT_TOKENS": ["abc", "-1", "2000000"],
    "LLM_CONTEXT_PERCENT": ["abc", "-1", "61"],
    "LLM_EXTRA_BODY": ["abc", "[]", '{"model": "x"}', '{"stream": true}', "{" * 9_000],
    "LLM_FALLBACK_API_KEY": ["two words", "schlüssel"],
    "LLM_FALLBACK_BASE_URL": [*_URLS, ""],
    "LLM_FALLBACK_MODEL": [""],
    "LLM_FALLBACK_PROVIDER": ["OpenAI", "ollama"],
    "LLM_MODEL": [""],
    "FINDING_BUDGET": [*_NUMBERS, "0", "2000"],
    "DOCUMENT_SECTIONS": [*_NUMBERS, "51"],
    "EMBEDDINGS_BASE_URL": [*_URLS],
    "EMBEDDINGS_MODEL": ["two\nlines"],
    "EMBEDDINGS_DIMENSIONS": [*_NUMBERS, "5000"],
    "EMBEDDINGS_API_KEY": ["two words", "schlüssel"],
    "REVIEW_PASSES": ["3", "//depot/a/...", "//depot/a/...=0", "//depot/a/...=9", "-//depot/a/...=2", "a=2"],
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
    "P4TICKETS_NEXT": ["p4tickets", "~/.p4tickets"],
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
    "REVIEW_SLA_SECONDS": [*_NUMBERS, "0", "1,2", "shelved", "shelved=0", "pending=5", "scan=1,scan=2"],
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
    "SWARM_TICKET": ["", "two words"],
    "SWARM_TICKET_NEXT": ["two words"],
    "SWARM_URL": _URLS,
    "SWARM_USER": [""],
    "TRUSTED_PROXIES": ["abc", "10.0.0.0/33", "proxy.example.com"],
    "UNKNOWN_RECIPIENTS": ["all"],
    "WEBHOOK_HOSTS_PER_REQUEST": [*_NUMBERS, "0"],
    "WEBHOOK_NOT_IDEMPOTENT": ["https://ci.example.com", "ci example"],
    "WEBHOOK_SECRETS": ["abc", "whsec_", "whsec_not base64", "whsec_bm90LWEtcmVhbC1zZWNyZXQ=,abc"],
    "WORKERS": [*_NUMBERS, "0"],
    **{f"TOKEN_LIMIT_PER_{what}": _NUMBERS for what in ("REVIEW", "CHANGE", "SOURCE", "DAY")},
}  # fmt: skip
# Every line of text is valid here. System checks look at programs and at the length of SECRET_KEY.
ANY_TEXT = {
    *("ARTIFACT_S3_ACCESS_KEY", "ARTIFACT_S3_REGION", "ARTIFACT_S3_SECRET_KEY"),
    *(
        "GITEA_WEBHOOK_SECRETS",
        "GITHUB_WEBHOOK_SECRETS",
        "LLM_SKIP_PATHS",
        "LLM_VERIFY",
        "GIT_EXECUTABLE",
        "P4_EXECUTABLE",
        "SECRET_KEY_FALLBACKS",
    ),
    *("SMTP_PASSWORD", "SMTP_PASSWORD_NEXT", "SMTP_USER", "IMAP_ARCHIVE_PASSWORD_NEXT"),
}


def read(changes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the values of the complete environment with some changes."""
    return variables.read(Environment({**COMPLETE, **(changes or {})}))


def error_of(call: Callable[[], object]) -> str:
    """Return the error that ends the start; empty when it starts."""
    try:
        call()
    except ImproperlyConfigured as error:
        return str(error)
    return ""


@pytest.fixture(autouse=True)
def _data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPLETE, "CRITICIZER_DATA_DIR", str(tmp_path))


def test_the_complete_environment_is_valid_and_every_variable_has_wrong_values_here() -> None:
    assert read()["MAIL_FROM"] == "criticizer@localhost"
    assert {*WRONG, *ANY_TEXT} == set(VARIABLES)


def test_every_wrong_value_is_refused_with_the_variables_name_and_what_to_set() -> None:
    """And the problem does not repeat the value of a secret."""
    failures = []
    for name, value in ((name, value) for name, values in WRONG.items() for value in values):
        error = error_of(lambda: read({name: value}))  # noqa: B023  called at once
        if not re.search(rf"^{name}: .+\. Set .+\.$", error):
            failures.append(f"{name}={value!r}: {error or 'accepted'}")
        if VARIABLES[name].is_secret and value and value in error.partition(". Set ")[0]:
            failures.append(f"{name}={value!r} is repeated: {error}")
    assert failures == []


def test_malformed_secrets_are_refused_and_not_repeated() -> None:
    checked = {name for name, variable in VARIABLES.items() if variable.is_secret} - ANY_TEXT - {"SECRET_KEY"}
    errors = {name: error_of(lambda: read({name: "planted: nonsense"})) for name in checked}  # noqa: B023
    del errors["POSTMARK_WEBHOOK_AUTH"]  # it is a user and a password
    del errors["GITLAB_WEBHOOK_SECRETS"]  # only those that begin with whsec_ have a form
    assert [
        error for name, error in errors.items() if not error.startswith(name) or "nonsense" in error
    ] == []


def test_a_wrong_url_is_not_repeated() -> None:
    """The password of a URL that is read wrongly is not in the error.

    `https://user:pa/ss@host` is read as a host `user` with the port `pa`.
    """
    names = [name for name in VARIABLES if name.endswith("_URL") or name == "ARTIFACT_S3_ENDPOINT"]
    assert len(names) > 8
    errors = {name: error_of(lambda: read({name: "https://ann:pa/ss@host/v1"})) for name in names}  # noqa: B023
    assert [error for name, error in errors.items() if "pa/ss" in error] == []
    assert "is not a valid URL" in errors["LLM_BASE_URL"]


def test_line_breaks_and_unreadable_files_are_refused_for_every_variable() -> None:
    failures = []
    for name in VARIABLES:
        broken = {key: value for key, value in COMPLETE.items() if key != name}
        error = error_of(lambda: read({name: "planted\nnonsense"}))  # noqa: B023
        if not re.search(f"^{name}: holds line breaks.+Set ", error) or "planted" in error:
            failures.append(error or name)
        broken[f"{name}_FILE"] = "planted\nnonsense"
        error = error_of(lambda: variables.read(Environment(broken)))  # noqa: B023
        if not re.search(f"^{name}_FILE: the file cannot be read. Set ", error):
            failures.append(error or name)
    assert failures == []


RIGHT: list[tuple[str, str, Any]] = [
    ("ALLOWED_HOSTS", "*", ["*"]),
    ("ALLOWED_HOSTS", ".example.com,localhost,[::1],127.0.0.1",
     [".example.com", "localhost", "[::1]", "127.0.0.1"]),
    ("API_THROTTLE", "1000000/min", "1000000/min"),
    ("ARTIFACT_RAW_TTL_DAYS", "", 7),
    ("MIRRORS_MAX_GB", "", 20),
    ("BASE_URL", "http://[::1]:8000/", "http://[::1]:8000/"),
    ("CHANGE_SOURCES", "git, perforce,", ["git", "perforce"]),
    ("CSRF_TRUSTED_ORIGINS", "https://*.example.com,http://127.0.0.1:8000",
     ["https://*.example.com", "http://127.0.0.1:8000"]),
    ("DATABASE_OWNER_URL", "postgres://owner:p%23w@db/name", {"USER": "owner", "PASSWORD": "p#w"}),
    ("DATABASE_OWNER_URL", "", {}),
    ("DEBUG", "", False),
    ("DEFAULT_RECIPIENTS", "ann@example.com,webhook:https://ci.example.com/x",
     ["ann@example.com", "webhook:https://ci.example.com/x"]),
    ("DEBUG", "On", True),
    ("GIT_REPOSITORIES", "app=/srv/a, lib.x=/srv/b", {"app": Path("/srv/a"), "lib.x": Path("/srv/b")}),
    ("GIT_WATCH", "app:main, app:release/1.x,app:main", [("app", "main"), ("app", "release/1.x")]),
    ("GIT_WATCH", "", []),
    ("INTERNAL_DOMAINS", "*.corp.example.com,.build.internal", ["*.corp.example.com", ".build.internal"]),
    ("MAIL_FROM", "Code review <review@buildhost>", "Code review <review@buildhost>"),
    ("MAIL_FROM", '"Review, code" <review@example.com>', '"Review, code" <review@example.com>'),
    ("MAIL_FROM", "criticizer@[192.0.2.1]", "criticizer@[192.0.2.1]"),
    ("OUTBOUND_ALLOW", "ci.internal,10.0.0.0/8,[::1],buildhost",
     ["ci.internal", "10.0.0.0/8", "[::1]", "buildhost"]),
    ("OUTBOUND_ALLOW", "127.0.0.1,fd00::/8", ["127.0.0.1", "fd00::/8"]),
    ("P4USER", "svc-criticizer", "svc-criticizer"),
    ("RETRY_TIME_SCALE", "0.5", 0.5),
    ("SMTP_HOST", "::1", "::1"),
    ("SMTP_HOST", "mail", "mail"),
    ("SMTP_PASSWORD", "$ecret # with 'all' \"sorts\"", "$ecret # with 'all' \"sorts\""),
    ("SMTP_PORT", "", None),
    ("TRUSTED_PROXIES", "10.0.0.5,10.1.0.0/16", ["10.0.0.5/32", "10.1.0.0/16"]),
    ("WEBHOOK_SECRETS", "whsec_bm90LWEtcmVhbC1zZWNyZXQ=, whsec_YW5vdGhlciBvbmU=",
     ["whsec_bm90LWEtcmVhbC1zZWNyZXQ=", "whsec_YW5vdGhlciBvbmU="]),
]  # fmt: skip


def test_valid_values_are_read() -> None:
    found = [(name, text, read({name: text})[name]) for name, text, _ in RIGHT]
    assert found == RIGHT


def test_database_urls_become_djangos_settings() -> None:
    one = read({"DATABASE_URL": "postgresql://u:p%23w@db.internal/criticizer?sslmode=require"})[
        "DATABASE_URL"
    ]
    assert (one["HOST"], one["NAME"], one["PASSWORD"]) == ("db.internal", "criticizer", "p#w")
    assert one["OPTIONS"] == {"sslmode": "require"}
    assert read({"DATABASE_URL": "postgres://u@/criticizer?host=/var/run/postgresql"})["DATABASE_URL"]["NAME"]


def test_a_database_url_may_name_several_hosts() -> None:
    """Work goes to the host that takes writes, although the URL does not ask for it (G480)."""
    for hosts, expected in (
        ("db1:5432,db2:5433", ("db1,db2", "5432,5433")),
        ("db1,db2", ("db1,db2", "")),
        ("[::1]:5432,10.0.0.2:5433", ("::1,10.0.0.2", "5432,5433")),
    ):
        one = read({"DATABASE_URL": f"postgres://u:p%2Cw@{hosts}/criticizer"})["DATABASE_URL"]
        assert (one["HOST"], one["PORT"], one["PASSWORD"]) == (*expected, "p,w")
        assert one["OPTIONS"] == {"target_session_attrs": "read-write"}
        assert one["ENGINE"] == "criticizer.db.several_servers"
    url = "postgres://u@db1,db2/criticizer?target_session_attrs=primary"
    assert read({"DATABASE_URL": url})["DATABASE_URL"]["OPTIONS"] == {"target_session_attrs": "primary"}
    assert read({"DATABASE_OWNER_URL": "postgres://o:p@db1:1,db2:2/c"})["DATABASE_OWNER_URL"] == {
        "USER": "o",
        "PASSWORD": "p",
    }


def test_a_hosted_model_needs_its_key_unless_a_gateway_holds_it() -> None:
    hosted = {"LLM_PROVIDER": "anthropic", "LLM_BASE_URL": ""}
    error = error_of(lambda: read(hosted))
    assert error.startswith("LLM_API_KEY: is not set while LLM_PROVIDER is anthropic. Set ")
    assert read({**hosted, "LLM_BASE_URL": "https://gateway.internal/"})["LLM_PROVIDER"] == "anthropic"
    assert read({**hosted, "LLM_API_KEY_NEXT": "key"})["LLM_PROVIDER"] == "anthropic"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"LLM_FALLBACK_PROVIDER": "openai", "LLM_PROVIDER": "none", "LLM_REQUIRED": "false"},
            "LLM_FALLBACK_PROVIDER: is set while LLM_PROVIDER is none",
        ),
        (
            {"LLM_FALLBACK_PROVIDER": "anthropic", "LLM_FALLBACK_BASE_URL": ""},
            "LLM_FALLBACK_API_KEY: is not set while LLM_FALLBACK_PROVIDER is anthropic",
        ),
        (
            {"LLM_REQUIRED": "true", "LLM_PROVIDER": "none"},
            "LLM_REQUIRED: is true while LLM_PROVIDER is none",
        ),
        ({"DEFAULT_RECIPIENTS": "ann@example.com,pager:5"}, "DEFAULT_RECIPIENTS: The channel 'pager'"),
        ({"DEFAULT_RECIPIENTS": "mail:Ann <ann@example.com>"}, "DEFAULT_RECIPIENTS: A mail recipient"),
        ({"MAIL_PROVIDER": "pigeon"}, "MAIL_PROVIDER: 'pigeon' is unknown"),
        ({"IMAP_ARCHIVE_URL": "https://h/"}, "IMAP_ARCHIVE_URL: is not valid"),
        ({"IMAP_ARCHIVE_ADDRESS": ""}, "IMAP_ARCHIVE_ADDRESS: is not set while IMAP_ARCHIVE_URL is"),
        ({"POSTMARK_WEBHOOK_AUTH": "nothing"}, "POSTMARK_WEBHOOK_AUTH: is not user:password"),
        ({"MAIL_PROVIDER": "smtp"}, "SMTP_HOST: is not set while MAIL_PROVIDER is smtp"),
        ({"MAIL_PROVIDER": "resend"}, "RESEND_API_KEY: is not set while MAIL_PROVIDER is resend"),
        ({"MAIL_PROVIDER": "postmark"}, "POSTMARK_SERVER_TOKEN: is not set while MAIL_PROVIDER is postmark"),
        ({"IMAP_ARCHIVE_URL": ""}, "IMAP_ARCHIVE_URL: is not set while IMAP_ARCHIVE_ADDRESS is"),
        ({"DATABASE_URL": "", "SECRET_KEY": "", "ARTIFACT_KEYS": ""}, ""),
        ({"ARTIFACT_STORAGE": "file", "ARTIFACT_S3_BUCKET_RAW": ""}, ""),
    ],
)
def test_errors_name_the_variable_and_the_problem(changes: dict[str, str], words: str) -> None:
    error = error_of(lambda: read(changes))
    assert error.startswith(words)
    assert bool(error) == bool(words)


def test_a_file_is_read_before_the_variable_itself(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("  $from # file\n")
    values = read({"SMTP_PASSWORD": "other", "SMTP_PASSWORD_FILE": str(tmp_path / "password")})
    assert values["SMTP_PASSWORD"] == "$from # file"


# -- settings -------------------------------------------------------------------------------------


def started(monkeypatch: pytest.MonkeyPatch, **changes: str) -> dict[str, Any]:
    """Return the settings as a start would have them, without a `.env` file."""
    monkeypatch.setattr(os, "environ", {"PATH": os.environ["PATH"], **COMPLETE, **changes})
    monkeypatch.setattr(dotenv, "load", lambda path, into: None)
    return runpy.run_path(str(settings.BASE_DIR / "criticizer" / "settings" / "__init__.py"))


def test_a_private_key_is_read_from_its_file_and_from_one_line(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    (tmp_path / "key.pem").write_text(pem)
    for given in (
        {"GITHUB_PRIVATE_KEY_FILE": str(tmp_path / "key.pem")},
        {"GITHUB_PRIVATE_KEY": pem},
        {"GITHUB_PRIVATE_KEY": pem.strip().replace("\n", "\\n")},
    ):
        assert read(given)["GITHUB_PRIVATE_KEY"] == pem.strip()
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass"))
    assert "without a passphrase" in error_of(lambda: read({"GITHUB_PRIVATE_KEY": sealed.decode()}))


def test_a_private_key_is_checked_once_and_a_wrong_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[bytes] = []

    def counted(data: bytes, password: None) -> Any:
        loaded.append(data)
        return load_pem_private_key(data, password)

    monkeypatch.setattr(github_variables, "load_pem_private_key", counted)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    for given, times in ((pem, 1), (pem, 1), (f"{pem[:200]}\n{pem[300:]}", 2), ("abc", 3), ("abc", 4)):
        if times > 1:
            assert "is not an RSA key" in error_of(lambda given=given: read({"GITHUB_PRIVATE_KEY": given}))
        else:
            assert read({"GITHUB_PRIVATE_KEY": given})["GITHUB_PRIVATE_KEY"] == pem.strip()
        assert len(loaded) == times


def test_settings_are_composed_from_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    found = started(
        monkeypatch, SMTP_SECURITY="tls", LLM_API_KEY_NEXT="key", BASE_URL="https://c.example.com"
    )
    assert found["DATABASES"]["default"]["HOST"] == "127.0.0.1"
    assert found["DATABASE_OWNER"] == {"USER": "owner", "PASSWORD": "pw"}
    assert (found["SMTP_PORT"], list(found["LLM_API_KEYS"]), found["LLM_REQUIRED"]) == (465, ["key"], True)
    assert "c.example.com" in found["ALLOWED_HOSTS"]
    assert found["SESSION_COOKIE_SECURE"] is True
    assert found["REVIEW_SLA_SECONDS"] == {"": 1200}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "TRACE"),
        ("SMTP_PORT", "0"),
        ("ARTIFACT_KEYS", ""),
        ("LLM_BASE_URL", ""),
        ("GIT_WATCH", "x"),
    ],
)
def test_a_wrong_variable_ends_the_settings(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^{name}: .+\. Set .+\.$"):
        started(monkeypatch, **{name: value})


# -- generated files ------------------------------------------------------------------------------


def test_the_example_and_the_page_are_current_and_name_every_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call_command("environment_table", check=True)
    example, page = reference.example(), reference.page()
    assert re.findall(r"^#?([A-Z0-9_]+)=", example, re.MULTILINE) == list(VARIABLES)
    named = re.findall(r"^\| (`[A-Z0-9_]+`(?:, `[A-Z0-9_]+_NEXT`)?) \|", page, re.MULTILINE)
    assert re.findall(r"[A-Z0-9_]+", " ".join(named)) == list(VARIABLES)
    assert max(map(len, example.splitlines())) <= 110
    monkeypatch.setattr(reference, "_PAGE_HEAD", "# Other\n")
    with pytest.raises(
        CommandError, match=r"docs/configuration\.md is not current: run manage.py environment_table"
    ):
        call_command("environment_table", check=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("600", {"": 600}),
        ("submitted=1200,shelved=600,scan=3600", {"": 1200, "submitted": 1200, "shelved": 600, "scan": 3600}),
        ("900, github=300", {"": 900, "github": 300}),
    ],
)
def test_deadlines_are_one_number_or_by_source_and_kind(text: str, seconds: dict[str, int]) -> None:
    assert read({"REVIEW_SLA_SECONDS": text})["REVIEW_SLA_SECONDS"] == seconds
