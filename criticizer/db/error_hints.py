"""Turn database errors of management commands into actionable messages."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error, connection

from criticizer.db import reconnect
from criticizer.observability import health
from criticizer.redaction import clean
from criticizer.resilience.failures import sqlstate_of

_UNKNOWN = {"42P01", "42703"}  # table, column
_REMEDY = "Start that PostgreSQL, or correct host, port, name and login in DATABASE_URL."


def why_database(error: Error) -> str:
    """Return what is wrong with the database and what to do; "" when the error is a defect of ours."""
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
