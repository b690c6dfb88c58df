"""The timeline of the database: another one since a standby was promoted or a backup was restored.

PostgreSQL begins a new one with either. What was committed last on the one before may be missing then.
"""

from __future__ import annotations

from django.db import DatabaseError

from criticizer.db import prepared

# The first eight digits of the name of the log file that is written now.
READ = """
SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline,
       (SELECT system_identifier FROM pg_control_system()) AS system"""


def read() -> tuple[int, int] | None:
    """Return the timeline, from 1, and the number of the database system; None where the server tells none.

    Must not be called in a transaction: a server that refuses ends it.
    """
    try:
        row = prepared.row(READ, {})
    except DatabaseError:
        return None  # as a server whose storage is replicated below PostgreSQL
    return None if row is None else (row["timeline"], row["system"])


def is_first() -> bool:
    """Say whether no commit of this database can be missing: no standby was promoted, no backup restored."""
    found = read()
    return found is not None and found[0] == 1
