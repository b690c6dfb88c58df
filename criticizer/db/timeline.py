"""The timeline of the database: another one since a standby was promoted or a backup was restored.

PostgreSQL begins a new one with either. What was committed last on the one before may be missing then.
"""

from __future__ import annotations

from datetime import datetime

from django.db import DatabaseError

from criticizer.db import prepared

# The first eight digits of the name of the log file that is written now.
READ = """
SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline,
       (SELECT system_identifier FROM pg_control_system()) AS system"""

# It stands still once the server is promoted.
LAST = "SELECT pg_last_xact_replay_timestamp() AS last"


def read() -> tuple[int, int] | None:
    """Return the timeline, from 1, and the number of the database system; None where the server tells none.

    Must not be called in a transaction: a server that refuses ends it.
    """
    try:
        row = prepared.row(READ, {})
    except DatabaseError:
        return None  # as a server whose storage is replicated below PostgreSQL
    return None if row is None else (row["timeline"], row["system"])


def last_taken_over() -> datetime | None:
    """Return the time of the last commit that this server took over before it was promoted or restored.

    By the clock of the server that committed it. None where the server was restarted since, or tells none.
    """
    try:
        found = prepared.row(LAST, {})
    except DatabaseError:
        return None
    return None if found is None else found["last"]


def is_first() -> bool:
    """Say whether no commit of this database can be missing: no standby was promoted, no backup restored."""
    found = read()
    return found is not None and found[0] == 1
