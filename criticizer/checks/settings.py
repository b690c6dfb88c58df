"""System checks: what is wrong is said at start, with the remedy.

Those of `check --deploy` tell what an installation lacks that others rely on. What lies outside
the settings and may be away for a while is looked at by `check` and `up` alone: `start_checks`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.core.checks.security.base import check_secret_key
from django.utils.module_loading import import_string

from criticizer import mail

TAG = "criticizer"


@register(TAG)
def dotted_paths(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Import every stage and port named in settings (criticizer.E002)."""
    named = {
        **{f"STAGES[{stage!r}]": path for stage, (path, _) in settings.STAGES.items()},
        "DEADLETTER_RECOVERY": settings.DEADLETTER_RECOVERY,
        **{f"MAINTENANCE[{path!r}]": path for path in settings.MAINTENANCE},
    }
    found: list[CheckMessage] = []
    for name, path in named.items():
        try:
            import_string(path)
        except ImportError as error:
            found.append(
                Error(f"{name}: {error}", hint=f"Set {name} to an importable path.", id="criticizer.E002")
            )
    return found


@register(TAG)
def storages(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Import the storages of artifacts, one of which needs an extra (criticizer.E004)."""
    for name, storage in settings.STORAGES.items():
        try:
            import_string(storage["BACKEND"])
        except ImportError:
            return [
                Error(
                    f"STORAGES[{name!r}] needs a package that is not installed.",
                    hint="Install requirements/s3.txt, or set ARTIFACT_STORAGE=file.",
                    id="criticizer.E004",
                )
            ]
    return []


@register(TAG)
def executables(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for the command of each source whose variable names none (criticizer.W003)."""
    configured = {"perforce": ("p4", "P4_EXECUTABLE"), "git": ("git", "GIT_EXECUTABLE")}
    found: list[CheckMessage] = []
    for source in settings.CHANGE_SOURCES:
        command, variable = configured[source]
        if not getattr(settings, variable) and shutil.which(command) is None:
            found.append(
                checks.Warning(
                    f"{source} is a configured source, but its command {command} is not there.",
                    hint=f"Install {command}, set {variable}, or take {source} out of CHANGE_SOURCES.",
                    id="criticizer.W003",
                )
            )
    return found


@register(TAG)
def time_scale(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn about shortened waits (criticizer.W001)."""
    if settings.RETRY_TIME_SCALE == 1:
        return []
    return [
        checks.Warning(
            f"RETRY_TIME_SCALE is {settings.RETRY_TIME_SCALE}: waits are not the documented ones.",
            hint="Leave it unset outside drills and tests.",
            id="criticizer.W001",
        )
    ]


@register(TAG)
def secret_key(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn about a SECRET_KEY that can be guessed, by Django's own measure (criticizer.W008)."""
    if settings.DEBUG or not check_secret_key(None):
        return []
    return [
        checks.Warning(
            "SECRET_KEY is short or plain: who guesses it signs sessions, links and audit seals.",
            hint="Set it to 50 random characters or more, made with: openssl rand -base64 48",
            id="criticizer.W008",
        )
    ]


@register(TAG)
def perforce_server(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look for the address of a configured Perforce server (criticizer.W004)."""
    missing = " and ".join(name for name in ("P4PORT", "P4USER") if not getattr(settings, name))
    if "perforce" not in settings.CHANGE_SOURCES or not missing:
        return []
    return [
        checks.Warning(
            f"perforce is a configured source without {missing}: its changes fail.",
            hint=f"Set {missing}, or take perforce out of CHANGE_SOURCES.",
            id="criticizer.W004",
        )
    ]


@register(TAG)
def configured_recipients(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look at the channels of recipients that the configuration names (criticizer.W005, W006)."""
    needed = {"slack": "SLACK_BOT_TOKEN", "swarm": "SWARM_URL"}
    found: list[CheckMessage] = []
    for variable in ("DEFAULT_RECIPIENTS", "OPERATOR_ALERTS"):
        channels = {recipient.partition(":")[0].lower() for recipient in getattr(settings, variable)}
        if "webhook" in channels and not settings.WEBHOOK_SECRETS:
            found.append(_unsigned(f"{variable} names webhooks, which go out unsigned", "criticizer.W005"))
        found += [
            checks.Warning(
                f"{variable} names a recipient of {channel}, but {name} is not set: it fails.",
                hint=f"Set {name}, or take the recipient out.",
                id="criticizer.W006",
            )
            for channel, name in needed.items()
            if channel in channels and not getattr(settings, name)
        ]
    return found


def _unsigned(
    problem: str, check_id: str, kind: type[checks.Warning | checks.Info] = checks.Warning
) -> CheckMessage:
    return kind(
        f"{problem}: a receiver cannot tell them from anybody else's.",
        hint="Set WEBHOOK_SECRETS to a secret made with: echo whsec_$(openssl rand -base64 32)",
        id=check_id,
    )


# -- check --deploy ---------------------------------------------------------------------------


@register(TAG, deploy=True)
def own_database(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say that the embedded database is for trying out (criticizer.W010)."""
    if not settings.EMBEDDED_DATABASE:
        return []
    return [
        checks.Warning(
            "DATABASE_URL is not set: the embedded PostgreSQL has no backup and serves one machine.",
            hint="Set DATABASE_URL, and with it SECRET_KEY and ARTIFACT_KEYS.",
            id="criticizer.W010",
        )
    ]


@register(TAG, deploy=True)
def public_address(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Look at the address that links in messages begin with (criticizer.W011, W012)."""
    url = urlsplit(settings.BASE_URL)
    if _is_here(url.hostname or ""):
        return [
            checks.Warning(
                f"BASE_URL is {settings.BASE_URL}: links in messages lead nowhere on other machines.",
                hint="Set BASE_URL to the address people use, such as https://criticizer.example.com.",
                id="criticizer.W011",
            )
        ]
    if url.scheme == "https":
        return []
    return [
        checks.Warning(
            "BASE_URL is plain HTTP: passwords, sessions and API keys cross the network readable.",
            hint="Put a TLS proxy in front and set BASE_URL to its https:// address.",
            id="criticizer.W012",
        )
    ]


def _is_here(host: str) -> bool:
    """Say whether a host's name means this machine, or every address of it."""
    try:
        address = ip_address(host)
    except ValueError:
        return host in {"", "localhost"} or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


@register(TAG, deploy=True)
def mail_leaves(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say when mail stays in the data directory, or comes from nowhere (criticizer.I013, W014)."""
    if mail.provider() == mail.MAILDIR:
        return [
            checks.Info(
                "No mail server is set: mail to people is only written to the data directory.",
                hint="Set SMTP_HOST, or MAIL_PROVIDER and its key.",
                id="criticizer.I013",
            )
        ]
    if not settings.MAIL_FROM.rstrip("> ").endswith("@localhost"):
        return []
    return [
        checks.Warning(
            f"MAIL_FROM is {settings.MAIL_FROM}: mail servers refuse it or call it spam.",
            hint="Set MAIL_FROM to an address of a domain that you may send from.",
            id="criticizer.W014",
        )
    ]


@register(TAG, deploy=True)
def signed_webhooks(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say that webhooks go unsigned, whoever will ask for one (criticizer.I015)."""
    if settings.WEBHOOK_SECRETS:
        return []
    return [
        _unsigned("WEBHOOK_SECRETS is not set, so webhooks go out unsigned", "criticizer.I015", checks.Info)
    ]
