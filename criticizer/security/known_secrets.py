"""The values of all configured credentials, for the redactor alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings

from criticizer.environment.variables import VARIABLES

_MAX_TICKETS_BYTES = 65_536
_TICKET = re.compile(r":([0-9A-F]{16,64})\s*$", re.MULTILINE)


def own_secrets() -> list[str]:
    """Return every secret of this process: the configured ones, and the Perforce tickets as they are now."""
    return [*configured_secrets(), *_tickets()]


def configured_secrets() -> list[str]:
    """Return the secrets that all processes of an installation share, which change with its settings only."""
    named = (name for name, variable in VARIABLES.items() if variable.is_secret and not name.endswith("_URL"))
    found = [*settings.LLM_API_KEYS, *_database_passwords()]
    for value in (getattr(settings, name, "") for name in named):
        found += [value] if isinstance(value, str) else value
    found += [pair.partition(":")[2] for pair in settings.POSTMARK_WEBHOOK_AUTH]
    found += [storage.get("OPTIONS", {}).get("secret_key") or "" for storage in settings.STORAGES.values()]
    found.append(unquote(urlsplit(settings.IMAP_ARCHIVE_URL).password or ""))
    return list(filter(None, found))


def _database_passwords() -> Iterator[str]:
    for database in (*settings.DATABASES.values(), settings.DATABASE_OWNER):
        password = str(database.get("PASSWORD") or "")
        # A password equal to the user's name is not secret, and the name occurs in ordinary texts.
        if password and password not in {database.get("USER"), database.get("NAME")}:
            yield password


def _tickets() -> Iterator[str]:
    if settings.P4TICKETS:
        try:
            with Path(settings.P4TICKETS).open(encoding="utf-8", errors="replace") as file:
                yield from _TICKET.findall(file.read(_MAX_TICKETS_BYTES))
        except OSError:
            return  # the source reports it when it is used
