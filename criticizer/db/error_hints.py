"""Turn database errors of management commands into actionable messages."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import DatabaseError, Error, connection

from criticizer.db import reconnect
from criticizer.observability import health
from criticizer.redaction import clean
from criticizer.resilience.classification import sqlstate_of

_UNKNOWN = {"42P01", "42703"}  # table, column
_REMEDY = "Start that PostgreSQL, or correct host, port, name and login in DATABASE_URL."


def why_database(error: Error) -> str:
    """Return what is wrong with the database and what to do; "" if the defect is ours."""
    try:
        if sqlstate_of(error) in _UNKNOWN and not health.is_migrated():
            return "the database's tables are missing or older than this version. Run: manage.py migrate"
    except (DatabaseError, ImproperlyConfigured):
        return ""
    finally:
        connection.close()
    if reconnect.is_disconnect(error):
        return f"the database cannot be reached: {clean(' '.join(str(error).split()), 300)}. {_REMEDY}"
    return ""


def refuse_pooler(what: str) -> None:
    """Raise CommandError if DATABASE_URL names a pooler, which `what` cannot use."""
    if settings.DATABASE_POOLER != "none":
        raise CommandError(
            f"DATABASE_POOLER is {settings.DATABASE_POOLER}: {what} need sessions of their own. Unset "
            "it and set DATABASE_URL to PostgreSQL itself. Only the web server may use a pooler."
        )
