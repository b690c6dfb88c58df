"""Values of all configured credentials, for redaction only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from criticizer.environment.secret import Secret, tickets_in
from criticizer.environment.variables import VARIABLES

# Settings with several values each; Django takes the others as text.
_SECRETS = {
    "LLM_API_KEYS",
    "IMAP_ARCHIVE_PASSWORD",
    *(
        name
        for name, one in VARIABLES.items()
        if one.is_secret and name != "SECRET_KEY" and "_URL" not in name
    ),
}


def own_secrets() -> list[str]:
    """Return every secret of this process: configured ones and the present Perforce tickets."""
    files = (settings.P4TICKETS, settings.P4TICKETS_NEXT)
    return [*configured_secrets(), *(ticket for file in files if file for ticket in tickets_in(Path(file)))]


def configured_secrets() -> list[str]:
    """Return the secrets that all processes share; they change with the settings only."""
    found = [settings.SECRET_KEY, *_database_passwords()]
    for name in _SECRETS:
        values = getattr(settings, name, ())
        found += values.secret_parts() if isinstance(values, Secret) else values
    found += [storage.get("OPTIONS", {}).get("secret_key") or "" for storage in settings.STORAGES.values()]
    return list(filter(None, found))


def _database_passwords() -> Iterator[str]:
    for database in (*settings.DATABASES.values(), settings.DATABASE_OWNER):
        password = str(database.get("PASSWORD") or "")
        # A password that is also the name of the user or database is not secret: ordinary texts hold it.
        if password and password not in {database.get("USER"), database.get("NAME")}:
            yield password
