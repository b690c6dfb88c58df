"""System checks of the settings, with what to set; some only for `check --deploy`.

`checks.environment` checks what lies outside the settings and can be away for a while.
"""

from __future__ import annotations

import shutil
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks.security.base import check_secret_key
from django.utils.module_loading import import_string

from criticizer import mail
from criticizer.checks import Messages, check, message

SIGN_WEBHOOKS = "Set WEBHOOK_SECRETS to a secret made with: echo whsec_$(openssl rand -base64 32)"


@check()
def dotted_paths() -> Messages:
    """Import every stage and port named in settings (criticizer.E002)."""
    named = {
        **{f"STAGES[{stage!r}]": path for stage, (path, _) in settings.STAGES.items()},
        "DEADLETTER_RECOVERY": settings.DEADLETTER_RECOVERY,
        **{f"MAINTENANCE[{path!r}]": path for path in settings.MAINTENANCE},
    }
    for name, path in named.items():
        try:
            import_string(path)
        except ImportError as error:
            yield message("E002", f"{name}: {error}", f"Set {name} to an importable path.")


@check()
def storages() -> Messages:
    """Import the storages of artifacts, one of which needs an extra (criticizer.E004)."""
    for name, storage in settings.STORAGES.items():
        try:
            import_string(storage["BACKEND"])
        except ImportError:
            yield message(
                "E004",
                f"STORAGES[{name!r}] needs a package that is not installed.",
                "Install requirements/s3.txt, or set ARTIFACT_STORAGE=file.",
            )
            return


@check()
def executables() -> Messages:
    """Search the program of each source whose variable names none (criticizer.W003)."""
    programs = {"perforce": ("p4", "P4_EXECUTABLE"), "git": ("git", "GIT_EXECUTABLE")}
    for source in settings.CHANGE_SOURCES:
        command, variable = programs[source]
        if not getattr(settings, variable) and shutil.which(command) is None:
            yield message(
                "W003",
                f"{source} is a configured source, but its program {command} was not found.",
                f"Install {command}, set {variable}, or take {source} out of CHANGE_SOURCES.",
            )


@check()
def time_scale() -> Messages:
    """Warn about shortened waits (criticizer.W001)."""
    if settings.RETRY_TIME_SCALE != 1:
        yield message(
            "W001",
            f"RETRY_TIME_SCALE is {settings.RETRY_TIME_SCALE}: waits are not the documented ones.",
            "Leave it unset outside drills and tests.",
        )


@check()
def secret_key() -> Messages:
    """Warn about a SECRET_KEY that can be guessed, by Django's own measure (criticizer.W008)."""
    if not settings.DEBUG and check_secret_key(None):
        yield message(
            "W008",
            "SECRET_KEY is short or simple; who guesses it can forge sessions, links and audit seals.",
            "Set it to 50 random characters or more, made with: openssl rand -base64 48",
        )


@check()
def perforce_server() -> Messages:
    """Check that the address of a configured Perforce server is set (criticizer.W004)."""
    missing = " and ".join(name for name in ("P4PORT", "P4USER") if not getattr(settings, name))
    if "perforce" in settings.CHANGE_SOURCES and missing:
        yield message(
            "W004",
            f"perforce is a configured source without {missing}: its changes fail.",
            f"Set {missing}, or take perforce out of CHANGE_SOURCES.",
        )


# -- check --deploy ---------------------------------------------------------------------------


@check(deploy=True)
def own_database() -> Messages:
    """Warn about the embedded database, which is for trying out (criticizer.W010)."""
    if settings.EMBEDDED_DATABASE:
        yield message(
            "W010",
            "DATABASE_URL is not set: the embedded PostgreSQL has no backup and serves one machine.",
            "Set DATABASE_URL, and with it SECRET_KEY and ARTIFACT_KEYS.",
        )


@check(deploy=True)
def public_address() -> Messages:
    """Check the address that links in messages begin with (criticizer.W011, W012)."""
    url = urlsplit(settings.BASE_URL)
    if _is_this_machine(url.hostname or ""):
        yield message(
            "W011",
            f"BASE_URL is {settings.BASE_URL}: links in messages do not work on other machines.",
            "Set BASE_URL to the address people use, such as https://criticizer.example.com.",
        )
    elif url.scheme != "https":
        yield message(
            "W012",
            "BASE_URL is plain HTTP: passwords, sessions and API keys cross the network readable.",
            "Put a TLS proxy in front and set BASE_URL to its https:// address.",
        )


def _is_this_machine(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host in {"", "localhost"} or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


@check(deploy=True)
def mail_leaves() -> Messages:
    """Check that mail is sent, and from a real address (criticizer.I013, W014)."""
    if mail.provider() == mail.MAILDIR:
        yield message(
            "I013",
            "No mail server is set: mail is only written to the data directory.",
            "Set SMTP_HOST, or MAIL_PROVIDER and its key.",
        )
    elif settings.MAIL_FROM.rstrip("> ").endswith("@localhost"):
        yield message(
            "W014",
            f"MAIL_FROM is {settings.MAIL_FROM}: mail servers refuse it or call it spam.",
            "Set MAIL_FROM to an address of a domain that you may send from.",
        )


@check(deploy=True)
def alerted_operators() -> Messages:
    """Warn when alerts reach nobody (criticizer.W016)."""
    if not settings.OPERATOR_ALERTS:
        yield message(
            "W016",
            "OPERATOR_ALERTS is not set: failures, open circuits and missing evidence reach nobody.",
            "Set it to people or channels that are read, such as mail:ops@example.com.",
        )


@check(deploy=True)
def sections_by_agents() -> Messages:
    """Report that agents are not asked about sections of documents (criticizer.I021)."""
    if settings.LLM_PROVIDER == "agent" and settings.DOCUMENT_SECTIONS:
        yield message(
            "I021",
            "LLM_PROVIDER is agent: DOCUMENT_SECTIONS has no effect, no agent is asked about documents.",
            "Set DOCUMENT_SECTIONS to 0. Documents are verified by their deterministic claims.",
        )


@check(deploy=True)
def signed_webhooks() -> Messages:
    """Report that webhooks are sent unsigned (criticizer.I015)."""
    if not settings.WEBHOOK_SECRETS:
        problem = "WEBHOOK_SECRETS is not set, so webhooks are sent unsigned: receivers cannot verify them."
        yield message("I015", problem, SIGN_WEBHOOKS)
