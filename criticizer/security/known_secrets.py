"""The values of all configured credentials, for the redactor alone (specification 001, 9.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings

_MAX_TICKETS_BYTES = 65_536
_TICKET = re.compile(r":([0-9A-F]{16,64})\s*$", re.MULTILINE)


def own_secrets() -> list[str]:
    """Return every secret this process is configured with, the Perforce tickets included."""
    return [
        settings.SECRET_KEY,
        *settings.SECRET_KEY_FALLBACKS,
        settings.SMTP_PASSWORD,
        settings.SMTP_PASSWORD_NEXT,
        *settings.ARTIFACT_KEYS,
        *settings.LLM_API_KEYS,
        *settings.WEBHOOK_SECRETS,
        *_mail_secrets(),
        settings.SLACK_BOT_TOKEN,
        settings.SLACK_BOT_TOKEN_NEXT,
        settings.SWARM_TICKET,
        *_storage_secrets(),
        *_database_passwords(),
        *_tickets(),
    ]


def _mail_secrets() -> Iterator[str]:
    yield from (settings.RESEND_API_KEY, settings.RESEND_API_KEY_NEXT, *settings.RESEND_WEBHOOK_SECRETS)
    yield from (settings.POSTMARK_SERVER_TOKEN, settings.POSTMARK_SERVER_TOKEN_NEXT)
    for pair in settings.POSTMARK_WEBHOOK_AUTH:
        yield pair.partition(":")[2]
    if settings.IMAP_ARCHIVE_URL:
        yield unquote(urlsplit(settings.IMAP_ARCHIVE_URL).password or "")


def _storage_secrets() -> Iterator[str]:
    for storage in settings.STORAGES.values():
        if secret := storage.get("OPTIONS", {}).get("secret_key"):
            yield secret


def _database_passwords() -> Iterator[str]:
    for database in (*settings.DATABASES.values(), settings.DATABASE_OWNER):
        password = str(database.get("PASSWORD") or "")
        # A password that is the user's name is no secret, and the name stands in ordinary texts.
        if password and password not in {database.get("USER"), database.get("NAME")}:
            yield password


def _tickets() -> Iterator[str]:
    if settings.P4TICKETS:
        try:
            with Path(settings.P4TICKETS).open(encoding="utf-8", errors="replace") as file:
                yield from _TICKET.findall(file.read(_MAX_TICKETS_BYTES))
        except OSError:
            return  # the source says what is wrong with it when it is used
