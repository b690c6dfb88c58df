"""The table of environment variables: accepted values, defaults and meanings.

`read` validates an environment against it; `reference` writes `.env.example` and
docs/configuration.md from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from cryptography.fernet import Fernet

from criticizer.codehosts.registry import HOSTS
from criticizer.environment import WORK_DIR, combinations, database_urls, parsers
from criticizer.environment.parsers import (
    BOOLEAN,
    EXTRA_BODY,
    HEADER,
    HTTP,
    TEXT,
    TEXTS,
    Invalid,
    Parser,
    any_text,
    checked_list,
    choice,
    choices,
    integer,
    number,
    url,
)
from criticizer.environment.reader import Environment, wrong
from criticizer.environment.secret import Secret
from criticizer.environment.variable import Variable
from criticizer.environment.variable import secret_variable as _secret
from criticizer.redaction import RedactionBlocked
from criticizer.redaction.policy import parse as parse_policy
from criticizer.security.standard_webhooks import decode_secret
from notifications.providers.email.imap_archive import ArchiveConfig
from notifications.recipients import normalise
from reviews.sources.allowlist import AllowList
from reviews.sources.passes import Passes
from reviews.sources.perforce.client import validate_port

MAX_TOKENS = 1_000_000_000_000  # of a limit
SOURCES = ("perforce", "git", *HOSTS)


def _p4port(text: str) -> str:
    try:
        return validate_port(text)
    except ValueError:
        raise Invalid("is not the address of a Perforce server") from None


def _allow_list(text: str) -> list[str]:
    lines = parsers.items(text)
    AllowList(lines)
    return lines


def _redacted(setting: str, parse: Callable[[str], str], noun: str) -> Callable[[str], list[str]]:
    """Return the parse function of a list that is a setting of the redaction policy."""

    def parse_all(text: str) -> list[str]:
        found = [parse(item) for item in parsers.items(text)]
        try:
            parse_policy({setting: found})
        except RedactionBlocked:
            raise ValueError(f"is not a list of {noun}") from None
        return found

    return parse_all


def _imap_archive(text: str) -> str:
    if not ArchiveConfig.parse(text, "").passwords:
        raise ValueError("names no password")
    return text


def _user_and_password(text: str) -> str:
    if not all(text.partition(":")):
        raise Invalid("is not user:password")
    return text


RANDOM_TEXT = any_text("a random text of at least 50 characters, made with: openssl rand -base64 48")
ALLOW_LIST = Parser(_allow_list, "depot prefixes such as //depot/projectA/...,//depot/libs/...", list)
P4PORT = Parser(_p4port, "host:1666 or ssl:host:1666")
BUCKET = any_text("the name of a bucket of its own")
DOMAINS = Parser(
    _redacted("internal_domains", str, "domains"), "domains such as corp.example.com,build.internal", list
)
NETWORKS = Parser(_redacted("internal_nets", parsers.network, "networks"), parsers.NETWORKS.accepts, list)
IMAP_ARCHIVE = Parser(_imap_archive, "imaps://user:password@host/Mailbox, its parts percent-encoded")
WEBHOOK_LOGINS = checked_list(_user_and_password, "user:password, as in the webhook's URL")
WEBHOOK_SECRETS = checked_list(
    decode_secret, "whsec_ followed by base64, made with: echo whsec_$(openssl rand -base64 32)"
)
RECIPIENTS = checked_list(
    normalise, "recipients such as mail:ann@example.com,webhook:https://ci.example.com/hook"
)
FERNET_KEYS = checked_list(Fernet, "Fernet keys (manage.py generate_artifact_key), newest first")

# fmt: off
_SOURCES = (
    Variable("DEPOT_ALLOW_LIST", ALLOW_LIST,
             "The depot prefixes that may be read; the rows edited in the admin can only narrow them.",
             example="//depot/projectA/...,//depot/libs/...", is_required=True),
    Variable("CHANGE_SOURCES", choices("perforce", "git"), "Where changes come from.", "perforce"),
    Variable("P4_EXECUTABLE", TEXT, "The `p4` program. Unset: found on PATH.", example="/usr/bin/p4"),
    Variable("P4PORT", P4PORT, "The Perforce server.", example="ssl:perforce.example.com:1666"),
    Variable("P4USER", parsers.P4_USER, "The service account.", example="criticizer"),
    Variable("P4TICKETS", parsers.ABSOLUTE_PATH, "The file that `p4 login` wrote.",
             example="/etc/criticizer/p4tickets"),
    Variable("P4TICKETS_NEXT", parsers.ABSOLUTE_PATH, "Used when the ticket in P4TICKETS is refused.",
             example="/etc/criticizer/p4tickets-next"),
    Variable("P4TRUST", parsers.ABSOLUTE_PATH, "The file that `p4 trust` wrote.",
             example="/etc/criticizer/p4trust"),
    Variable("P4_REPLICA", BOOLEAN, "Whether P4PORT may lag behind the server that runs the triggers.",
             "false"),
    Variable("GIT_REPOSITORIES", parsers.GIT_REPOSITORIES, "The repositories of the source git.",
             example="app=/srv/git/app.git"),
    Variable("GIT_REFERENCES", parsers.GIT_REFERENCES,
             "Only commits that one of these references leads to can be reviewed.",
             "refs/heads/*", example="refs/heads/*,refs/pull/*"),
    Variable("GIT_EXECUTABLE", TEXT, "The `git` program. Unset: found on PATH.", example="git"),
    Variable("GIT_WATCH", parsers.GIT_WATCH, "Branches whose new commits are reviewed without a trigger.",
             example="app:main"),
    Variable("SOURCE_POLL_SECONDS", integer(0, 86_400),
             "How often sources are polled for changes that no trigger reported; 0: never.", "300"),
    Variable("SOURCE_POLL_BACKFILL", integer(0, 500),
             "How many of the newest changes of each source the first poll reviews.", "0"),
    Variable("SHELVE_DEBOUNCE_SECONDS", number(0, 3600),
             "Shelves of one changelist within this time become one review; 0: none do.", "60"),
)
_DATA = (
    _secret("DATABASE_URL", database_urls.DATABASE,
            "PostgreSQL. Unset: an embedded PostgreSQL in the data directory, for one machine.",
            example="postgres://criticizer:password@db:5432/criticizer"),
    _secret("DATABASE_OWNER_URL", database_urls.DATABASE_OWNER,
            "The role that `migrate` connects with, so that web and workers own no table.",
            example="postgres://owner:password@db:5432/criticizer"),
    Variable("DATABASE_POOLER", choice("none", "transaction"),
             "A pooler between the web server and PostgreSQL: docs/operations/pooler.md.", "none"),
    Variable("CRITICIZER_DATA_DIR", parsers.data_directory(WORK_DIR / "var"),
             "Embedded database, artifacts, mails and generated secrets. Unset: `./var`.", example="./var"),
    _secret("SECRET_KEY", RANDOM_TEXT,
            "Signs sessions, links and audit seals. Required with DATABASE_URL, otherwise generated."),
    _secret("SECRET_KEY_FALLBACKS", TEXTS, "Older keys whose signatures are still accepted."),
    _secret("ARTIFACT_KEYS", FERNET_KEYS,
            "Encrypt artifacts, newest first. Required with DATABASE_URL, otherwise generated."),
    Variable("ARTIFACT_STORAGE", choice("file", "s3"),
             "Where artifacts and removed dead letters are stored: docs/operations/artifacts.md.", "file"),
    Variable("ARTIFACT_S3_BUCKET_RAW", BUCKET, "The bucket of raw artifacts.", example="criticizer-raw"),
    Variable("ARTIFACT_S3_BUCKET_REDACTED", BUCKET, "The bucket of redacted artifacts.",
             example="criticizer-redacted"),
    Variable("ARTIFACT_S3_BUCKET_LETTERS", BUCKET, "The bucket of removed dead letters.",
             example="criticizer-letters"),
    Variable("ARTIFACT_S3_ENDPOINT", HTTP, "The S3 server. Unset: Amazon's.",
             example="https://s3.example.com"),
    Variable("ARTIFACT_S3_REGION", TEXT, "The region of the buckets.", example="eu-central-1"),
    Variable("ARTIFACT_S3_ACCESS_KEY", TEXT,
             "The id of the access key. Unset: the credentials of the machine's role."),
    _secret("ARTIFACT_S3_SECRET_KEY", TEXT, "The secret of the access key."),
    Variable("ARTIFACT_RAW_TTL_DAYS", integer(1, 7), "When raw artifacts are deleted.", "7"),
    Variable("MIRRORS_MAX_GB", integer(1, 100_000),
             "The size of all mirrors of repositories; above it those unused for longest go.", "20"),
    Variable("ARTIFACT_REDACTED_TTL_DAYS", integer(1, 30), "When redacted artifacts are deleted.", "30"),
    Variable("WORKERS", integer(1, 256),
             "Worker processes of the clusters `stages` and `notify` (there four at least) on each machine.",
             "2"),
)
_WEB = (
    Variable("BASE_URL", url("http", "https"),
             "The address people use. Links in messages begin with it; https:// turns on secure cookies.",
             "http://127.0.0.1:8000"),
    Variable("ALLOWED_HOSTS", parsers.ALLOWED_HOSTS,
             "Accepted Host headers. Unset: loopback and the host of BASE_URL.",
             example="criticizer.example.com"),
    Variable("CSRF_TRUSTED_ORIGINS", parsers.ORIGINS, "Further origins whose forms are accepted.",
             example="https://criticizer.example.com"),
    Variable("TRUSTED_PROXIES", parsers.NETWORKS, "Proxies whose X-Forwarded-For is trusted.",
             example="10.0.0.5,10.1.0.0/16"),
    Variable("API_THROTTLE", parsers.RATE, "Requests that one API key may make.", "6000/min"),
    Variable("LOG_LEVEL", choice("DEBUG", "INFO", "WARNING", "ERROR"), "The least level that is logged.",
             "INFO"),
    Variable("DEBUG", BOOLEAN, "Django's debug mode, for development only.", "false"),
)
_MODEL = (
    Variable("LLM_PROVIDER", choice("none", "openai", "anthropic", "agent"),
             "The kind of model server; `openai` is any compatible one. `agent`: agents of the customer, with"
             " models of their own: docs/agents.md.", "none"),
    Variable("LLM_REQUIRED", replace(BOOLEAN, accepts="false, or true with an LLM_PROVIDER"),
             "Whether a review waits for the model. false: while it is down, the deterministic checks "
             "are delivered with a banner. Unset: true with a provider.", example="true"),
    Variable("LLM_BASE_URL", HTTP, "The server's address up to /v1.",
             example="http://model.internal:8000/v1"),
    Variable("LLM_MODEL", any_text("the model's name"), "The model's name.", example="qwen2.5-coder-32b"),
    _secret("LLM_API_KEY", HEADER, "The key for the model server."),
    _secret("LLM_API_KEY_NEXT", HEADER, "Tried when LLM_API_KEY is refused."),
    Variable("AGENT_TASK_TIMEOUT_MINUTES", integer(1, 1440),
             "How long a task of an agent may take, never beyond a minute before its review's deadline.",
             "30"),
    Variable("LLM_FALLBACK_PROVIDER", choice("none", "openai", "anthropic"),
             "The kind of a second model server, which serves while the first one cannot answer.", "none"),
    Variable("LLM_FALLBACK_BASE_URL", HTTP, "Its address up to /v1.",
             example="http://backup.internal:8000/v1"),
    Variable("LLM_FALLBACK_MODEL", any_text("the model's name"), "Its model's name.",
             example="qwen2.5-coder-14b"),
    _secret("LLM_FALLBACK_API_KEY", HEADER, "Its key."),
    Variable("LLM_TIMEOUT_SECONDS", number(1, 3600), "The limit of one call.", "120"),
    Variable("LLM_MAX_CONCURRENCY", integer(1, 2000), "Calls at the same time, per worker.", "100"),
    Variable("LLM_MAX_INPUT_TOKENS", integer(500, 2_000_000), "The size of one chunk.", "24000"),
    Variable("LLM_MAX_OUTPUT_TOKENS", integer(0, 1_000_000),
             "The longest answer, reasoning included. 0: the server's own limit, for LLM_PROVIDER=openai.",
             "8192"),
    Variable("LLM_CONTEXT_PERCENT", integer(0, 60),
             "The share of a chunk for definitions that the change uses, from files it does not touch"
             " as well. 0: none is read or sent.", "35"),
    Variable("LLM_VERIFY", any_text("on, off, or a model's name"),
             "The second pass, which tries to refute each finding: by the same model, not at all, or by "
             "another model of the same server.", "on", example="qwen2.5-coder-7b"),
    Variable("FINDING_BUDGET", integer(1, 1000),
             "Findings that a message shows before it folds the rest. The page shows one and a half times as "
             "many; critical ones are never folded.", "8"),
    Variable("REVIEW_PASSES",
             checked_list(lambda line: Passes([line]), "patterns with a number: //depot/pay/...=3"),
             "How often the model is asked about files of some paths; of three passes or more, what only one"
             " of them says is folded: docs/second-opinion.md. The first pattern that matches decides.",
             example="//depot/pay/...=3"),
    Variable("DOCUMENT_SECTIONS", integer(0, 50),
             "How many sections of documents that describe what a change touches the model is asked"
             " about: is it still true? A call each; 0: none. docs/documentation-drift.md.", "5"),
    Variable("EMBEDDINGS_BASE_URL", HTTP,
             "An OpenAI-compatible server of embeddings, up to /v1, which finds further sections by meaning."
             " They are sent to it without secrets.", example="http://model.internal:8000/v1"),
    Variable("EMBEDDINGS_MODEL", any_text("the model's name"), "Its model's name.",
             example="text-embedding-3-small"),
    Variable("EMBEDDINGS_DIMENSIONS", integer(0, 4096),
             "How long its vectors are to be. 0: the model's own length.", "0"),
    _secret("EMBEDDINGS_API_KEY", HEADER, "Its key."),
    Variable("LLM_SKIP_PATHS", TEXTS,
             "Files that the checks alone read, besides lock files; * spans folders.",
             example="*/vendor/*,*.snap"),
    Variable("LLM_EXTRA_BODY", EXTRA_BODY,
             "Further fields of each request, as the server's manual names them.",
             example='{"reasoning_effort": "low"}'),
    Variable("REDACT_EMAILS", BOOLEAN, "Whether mail addresses are redacted.", "false"),
    Variable("INTERNAL_DOMAINS", DOMAINS,
             "Domains whose host names are redacted.", example="corp.example.com"),
    Variable("INTERNAL_NETWORKS", NETWORKS,
             "Networks whose addresses are redacted.", example="10.0.0.0/8"),
)
_DELIVERIES = (
    Variable("SMTP_HOST", parsers.HOST,
             "The mail server. Unset: mail is written to a maildir in the data directory.",
             example="mail.example.com"),
    Variable("SMTP_PORT", integer(1, 65535), "Its port. Unset: 25, with starttls 587, with tls 465.",
             example="587"),
    Variable("SMTP_USER", TEXT, "Its account.", example="criticizer"),
    _secret("SMTP_PASSWORD", TEXT, "The password of SMTP_USER."),
    _secret("SMTP_PASSWORD_NEXT", TEXT, "Tried when SMTP_PASSWORD is refused."),
    Variable("SMTP_SECURITY", choice("none", "starttls", "tls"),
             "How the connection to the mail server is encrypted.", "none"),
    Variable("MAIL_FROM", parsers.mail_address(with_name=True), "The sender of mail.",
             "criticizer@localhost"),
    Variable("MAIL_PROVIDER", choice("smtp", "maildir", "resend", "postmark"),
             "What sends mail. Unset: `smtp` with SMTP_HOST, otherwise `maildir`.", example="smtp"),
    _secret("IMAP_ARCHIVE_URL", IMAP_ARCHIVE,
            "The mailbox that shows what SMTP sent: docs/mail.md.",
            example="imaps://user:password@mail.example.com/Archive"),
    _secret("IMAP_ARCHIVE_PASSWORD_NEXT", TEXT, "Tried when the password of IMAP_ARCHIVE_URL is refused."),
    Variable("IMAP_ARCHIVE_ADDRESS", parsers.mail_address(), "The address that delivers into that mailbox.",
             example="criticizer-archive@example.com"),
    _secret("RESEND_API_KEY", HEADER, "A key with full access, to look up mails older than a day."),
    _secret("RESEND_API_KEY_NEXT", HEADER, "Tried when RESEND_API_KEY is refused."),
    Variable("RESEND_API_URL", HTTP, "The API of Resend.", "https://api.resend.com/"),
    _secret("RESEND_WEBHOOK_SECRETS", WEBHOOK_SECRETS,
            "The secrets of the webhook to BASE_URL/webhooks/resend/, newest first."),
    _secret("POSTMARK_SERVER_TOKEN", HEADER, "The token of the Postmark server."),
    _secret("POSTMARK_SERVER_TOKEN_NEXT", HEADER, "Tried when POSTMARK_SERVER_TOKEN is refused."),
    Variable("POSTMARK_API_URL", HTTP, "The API of Postmark.", "https://api.postmarkapp.com/"),
    _secret("POSTMARK_WEBHOOK_AUTH", WEBHOOK_LOGINS,
            "User and password in the URL of the webhook to BASE_URL/webhooks/postmark/."),
    _secret("WEBHOOK_SECRETS", WEBHOOK_SECRETS,
            "Secrets that sign our webhooks, newest first. Unset: they are sent unsigned."),
    Variable("WEBHOOK_NOT_IDEMPOTENT", parsers.URL_HOSTS,
             "Hosts whose receivers do not deduplicate: an uncertain delivery waits for an operator.",
             example="old.example.com,ci.example.com:8443"),
    Variable("WEBHOOK_HOSTS_PER_REQUEST", integer(1, 100), "Hosts whose webhooks one request may name.", "5"),
    Variable("OUTBOUND_ALLOW", parsers.OUTBOUND, "Internal hosts and networks that webhooks may reach.",
             example="ci.internal,10.0.0.0/8"),
    _secret("SLACK_BOT_TOKEN", HEADER, "Scopes: chat:write and channels:history (groups:history)."),
    _secret("SLACK_BOT_TOKEN_NEXT", HEADER, "Tried when SLACK_BOT_TOKEN is refused."),
    Variable("SLACK_API_URL", HTTP, "The API of Slack.", "https://slack.com/api"),
    Variable("SWARM_URL", HTTP, "P4 Code Review 2022.1 or later.", example="https://swarm.example.com"),
    Variable("SWARM_USER", any_text("the name of an account there"), "Its account.", example="criticizer"),
    _secret("SWARM_TICKET", HEADER, "The ticket that `p4 -u criticizer login -p` prints."),
    _secret("SWARM_TICKET_NEXT", HEADER, "Tried when SWARM_TICKET is refused."),
    Variable("DELIVERY_AUDIT_SECONDS", integer(0, 86_400), "How often deliveries are audited; 0: never.",
             "300"),
    Variable("DEFAULT_RECIPIENTS", RECIPIENTS,
             "Recipients of a trigger's change that no subscription covers.",
             example="mail:team@example.com"),
    Variable("UNKNOWN_RECIPIENTS", choice("named", "everything", "nothing"),
             "What recipients without an account here may read. `named`: everything if a request, an "
             "administrator or the configuration names them, otherwise the number of findings.",
             "named"),
)
_LIMITS = (
    Variable("REVIEW_SLA_SECONDS", parsers.deadlines("submitted", "shelved", "scan", *SOURCES),
             f"The deadline of a review, from its creation; by source ({', '.join(SOURCES)}) "
             "or kind (submitted, shelved, scan): docs/operations/deadlines.md.",
             "1200", example="1200,shelved=600,github=900"),
    Variable("TOKEN_LIMIT_PER_REVIEW", integer(0, MAX_TOKENS),
             "Tokens of all calls to language models for one review, read and written, retries and the second"
             " pass included. No call starts that would exceed it: the rest is not reviewed, and the"
             " review says so. 0: no limit, as for the next three.", "0"),
    Variable("TOKEN_LIMIT_PER_CHANGE", integer(0, MAX_TOKENS),
             "The same for all reviews of a changelist in the last 30 days.", "0"),
    Variable("TOKEN_LIMIT_PER_DAY", integer(0, MAX_TOKENS),
             "The same for all reviews of a day (UTC). A review that finds it used up waits for the next day,"
             " at most until its deadline.", "0"),
    Variable("TOKEN_LIMIT_PER_SOURCE", integer(0, MAX_TOKENS),
             "The same for each source a day: Perforce, or one repository.", "0"),
    Variable("DLQ_MAX_AGE_DAYS", integer(1, 3650),
             "When dead letters without activity are archived and removed.", "7"),
    Variable("DLQ_MAX_SIZE", integer(1, 10_000_000),
             "Above this number of dead letters the oldest are archived and removed.", "10000"),
    Variable("DLQ_ALERT_PER_DAY", integer(1, 1_000_000),
             "Above this number of new dead letters a day, operators are alerted.", "100"),
    Variable("OPERATOR_ALERTS", RECIPIENTS,
             "Where operators are alerted of failures, timeouts, open circuits and missing evidence.",
             example="mail:ops@example.com,webhook:https://ops.example.com/hook"),
    Variable("REPLAY_APPROVAL_ABOVE", integer(0, 1_000_000),
             "Replay batches of more dead letters need a second person's approval.", "100"),
    Variable("DEADLETTER_EDIT", BOOLEAN,
             "Whether the data of a dead letter may be edited before its replay, by two people.", "false"),
    Variable("RATE_LIMITS", parsers.RATE_LIMITS, "Calls by dependency; each webhook host has its own.",
             example="llm:openai=60/m,provider:mail=10/s,provider:webhook=5/s"),
    Variable("CONCURRENCY_LIMITS", parsers.CONCURRENCY_LIMITS,
             "Calls at the same time by dependency, of all workers together.",
             example="llm:openai=200"),
    Variable("RETRY_TIME_SCALE", number(0.001, 10),
             "Multiplies all waits, for drills and tests; keep it at 1.", "1"),
)
# fmt: on
SECTIONS = {
    "Sources": _SOURCES,
    "Code hosts": tuple(variable for host in HOSTS.values() for variable in host.variables),
    "Database and data": _DATA,
    "Web": _WEB,
    "Language model": _MODEL,
    "Deliveries": _DELIVERIES,
    "Limits": _LIMITS,
}
VARIABLES = {variable.name: variable for section in SECTIONS.values() for variable in section}


def read(environment: Environment) -> dict[str, Any]:
    """Return the value of every variable. Raises ImproperlyConfigured for the first wrong one."""
    values = {name: variable.parse(environment.text(name)) for name, variable in VARIABLES.items()}
    for name, problem in combinations.problems(values):
        raise wrong(name, problem, VARIABLES[name].parser.accepts)
    return values


def secret(environment: Environment, name: str, known_as: Callable[[str], str] = str) -> Secret:
    """Return the secret of a variable and of its `_NEXT`, read and parsed at each use.

    A file that was not empty at the start and is now is being written: the use of the secret fails, instead
    of going on without one.
    """
    was_set = bool(environment.text(name))

    def read() -> Iterator[str]:
        for one in (name, f"{name}_NEXT"):
            if one in VARIABLES and VARIABLES[one].is_secret:
                text = environment.text(one)
                if was_set and one == name and not text:
                    raise wrong(f"{name}_FILE", "the file is empty, and was not at the start", "the secret")
                value = VARIABLES[one].parse(text)
                yield from [value] if isinstance(value, str) else value

    return Secret(name, read, known_as)


def archive_password(environment: Environment) -> Secret:
    """Return the password of IMAP_ARCHIVE_URL and the next one."""

    def read() -> list[str]:
        password = urlsplit(environment.text("IMAP_ARCHIVE_URL")).password or ""
        return [unquote(password), environment.text("IMAP_ARCHIVE_PASSWORD_NEXT")]

    return Secret("IMAP_ARCHIVE_PASSWORD", read)
