"""The timeline of the database, which shows that the last commits may be missing.

PostgreSQL begins a new timeline when a standby is promoted or a backup is restored. The last commits on the
timeline before may be missing then.
"""

from __future__ import annotations

from datetime import datetime

from django.db import DatabaseError

from criticizer.db import prepared

# The first eight digits of the name of the log file that is written now.
READ = """
SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline,
       (SELECT system_identifier FROM pg_control_system()) AS system"""

# This time no longer changes once the server is promoted.
LAST = "SELECT pg_last_xact_replay_timestamp() AS last"


def read() -> tuple[int, int] | None:
    """Return the number of the timeline, from 1, and that of the database system.

    None where the server gives none. Must not be called in a transaction: an error of the server ends it.
    """
    try:
        row = prepared.row(READ, {})
    except DatabaseError:
        return None  # for example a server whose storage is replicated below PostgreSQL
    return None if row is None else (row["timeline"], row["system"])


def last_taken_over() -> datetime | None:
    """Return the time of the last commit from before the server was promoted or restored.

    By the clock of the server that committed it. None where the server was restarted since, or gives none.
    """
    try:
        found = prepared.row(LAST, {})
    except DatabaseError:
        return None
    return None if found is None else found["last"]


def is_first() -> bool:
    """Return whether the timeline is the first one, so that no commit can be missing."""
    found = read()
    return found is not None and found[0] == 1
