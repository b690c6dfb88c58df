"""Hot statements on Django's own connection, as server-side prepared statements.

Django binds parameters on the client, so PostgreSQL plans every statement anew. The claim,
record and intake statements are long and run thousands of times; preparing them halves
their cost. They take part in Django's transactions like any other statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
import structlog
from django.db import InterfaceError, OperationalError, connection
from psycopg.rows import dict_row, tuple_row

log = structlog.get_logger(__name__)
T = TypeVar("T")
Parameters = Mapping[str, Any] | Sequence[Any]
# Django opens its connections with preparing switched off, which overrules `prepare=True`. This
# high a threshold prepares what asks for it and nothing else.
_WHEN_ASKED = 2**31


def _execute(sql: str, parameters: Parameters, row_factory: Any) -> list[Any]:
    if connection.connection is not None and connection.connection.closed and not connection.in_atomic_block:
        connection.close()  # the server went away under a thread that nobody looks after
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        connection.connection.prepare_threshold = _WHEN_ASKED
    with (
        connection.wrap_database_errors,
        psycopg.Cursor(connection.connection, row_factory=row_factory) as cursor,
    ):
        cursor.execute(sql.encode(), parameters, prepare=True)
        return cursor.fetchall() if cursor.description is not None else []


def rows(sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
    """Run one statement and return its rows as dictionaries (empty when it returns none)."""
    return list(_execute(sql, parameters, dict_row))


def row(sql: str, parameters: Parameters = ()) -> dict[str, Any] | None:
    """Run one statement and return its first row, or None."""
    found = rows(sql, parameters)
    return found[0] if found else None


def value(sql: str, parameters: Parameters = ()) -> Any:
    """Run one statement and return the first column of its first row, or None."""
    found = _execute(sql, parameters, tuple_row)
    return found[0][0] if found else None


def reconnecting(
    work: Callable[[], T], *, sleep: Callable[[float], None], attempts: int, seconds: float
) -> T:
    """Run `work`, repeating it when the connection to PostgreSQL is lost or another won a deadlock.

    `work` must be safe to repeat: a lost connection may hide a commit. Waits `seconds`
    between tries and raises the last error after `attempts`.
    """
    for attempt in range(1, attempts + 1):
        try:
            return work()
        except (OperationalError, InterfaceError) as error:
            if connection.in_atomic_block or attempt == attempts:
                raise
            if _sqlstate(error) in _CONFLICTS:
                sleep(0.05)
                continue
            if not _is_disconnect(error):
                raise
            log.warning("database_reconnect", attempt=attempt)
            connection.close()
            sleep(seconds)
    raise AssertionError("unreachable")


_CONFLICTS = {"40001", "40P01"}  # serialization failure, deadlock


def _sqlstate(error: Exception) -> str:
    return getattr(error.__cause__, "sqlstate", None) or ""


def _is_disconnect(error: Exception) -> bool:
    sqlstate = _sqlstate(error)
    # 57P0x: the server ends or starts; 08: connection; none at all: the socket went away.
    return not sqlstate or sqlstate.startswith("08") or sqlstate in {"57P01", "57P02", "57P03"}
