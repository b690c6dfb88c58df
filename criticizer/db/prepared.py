"""Hot statements on Django's own connection, as server-side prepared statements.

Django binds parameters on the client, so PostgreSQL plans every statement anew. The claim,
record and intake statements are long and run thousands of times; preparing them halves
their cost. They take part in Django's transactions like any other statement, and while
Django keeps a log of its statements (a test that counts them, DEBUG) they are in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import psycopg
import structlog
from django.db import InterfaceError, InternalError, OperationalError, connection
from django.db.backends.utils import CursorDebugWrapper
from psycopg.rows import dict_row, tuple_row

from criticizer.resilience.failures import sqlstate_of

log = structlog.get_logger(__name__)
T = TypeVar("T")
Parameters = Mapping[str, Any] | Sequence[Any]
# Django opens its connections with preparing switched off, which overrules `prepare=True`. This
# high a threshold prepares what asks for it and nothing else.
_WHEN_ASKED = 2**31
LOOK_SECONDS = 0.5  # between looks for a server that is away
_lost_at = -math.inf  # monotonic


def _execute(sql: str, parameters: Parameters, row_factory: Any) -> list[Any]:
    if connection.connection is not None and connection.connection.closed and not connection.in_atomic_block:
        note_loss()
        connection.close()  # the server went away under a thread that nobody looks after
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        connection.connection.prepare_threshold = _WHEN_ASKED
    with (
        connection.wrap_database_errors,
        psycopg.Cursor(connection.connection, row_factory=row_factory) as cursor,
    ):
        with _logged(cursor, sql, parameters) if connection.queries_logged else nullcontext():
            cursor.execute(sql.encode(), parameters, prepare=True)
        return cursor.fetchall() if cursor.description is not None else []


def _logged(cursor: psycopg.Cursor[Any], sql: str, parameters: Parameters) -> AbstractContextManager[None]:
    """Enter a statement, as it is written here, into the log that Django keeps of its own.

    Not through its wrappers: one of pghistory puts a second statement before ours in a request.
    """
    return CursorDebugWrapper(cursor, connection).debug_sql(sql, parameters)


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


def sql_list(words: Iterable[str]) -> str:
    """Return words of ours, such as states, as the list behind an SQL text's IN: "('queued', 'running')".

    Part of the text on purpose: a parameter would keep the planner from a partial index. Raises
    ValueError for what is no plain word, and for none at all.
    """
    listed = [str(word) for word in words]
    if not listed or not all(word.isascii() and word.isidentifier() for word in listed):
        raise ValueError(f"not a list of plain words: {listed}")
    return "(" + ", ".join(f"'{word}'" for word in listed) + ")"


def with_retries(
    work: Callable[[], T], *, waits: Iterable[float], sleep: Callable[[float], None] = time.sleep
) -> T:
    """Run `work`, repeating it when the connection to PostgreSQL is lost or another won a deadlock.

    `work` must be safe to repeat: a lost connection may hide a commit. `waits` are the seconds
    before each further try, as many as it yields; then the last error is raised. A wait for the
    server ends early when the server answers again.
    """
    is_believed = True  # a proxy may answer for a server that is still away
    remaining = iter(waits)
    while True:
        try:
            return work()
        except (OperationalError, InterfaceError, InternalError) as error:
            is_conflict = sqlstate_of(error) in _CONFLICTS
            if connection.in_atomic_block or not (is_conflict or is_disconnect(error)):
                raise
            seconds = next(remaining, None)
            if seconds is None:
                raise
            if is_conflict:
                sleep(0.05)
                continue
            note_loss()
            log.warning("database_reconnect", seconds=round(seconds, 1))
            connection.close()
            if is_believed:
                is_believed = not pause(seconds, sleep)
            else:
                is_believed = True
                sleep(seconds)


def pause(seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait for the server, `seconds` at most; say whether it answered before they were over.

    Looks twice a second: one refused connection costs nothing, and a restart no more than it takes.
    """
    left = seconds
    while True:
        if _answers():
            return True
        if left <= 0:
            return False
        sleep(min(LOOK_SECONDS, left))
        left -= LOOK_SECONDS


def _answers() -> bool:
    connection.close()
    try:
        connection.ensure_connection()
    except (OperationalError, InterfaceError):
        note_loss()
        return False
    return bool(connection.is_usable())


def note_loss() -> None:
    """Remember that this process found the database away just now."""
    global _lost_at
    _lost_at = time.monotonic()


def seconds_since_loss() -> float:
    """Return how long ago this process last found the database away (infinity: never)."""
    return time.monotonic() - _lost_at


_CONFLICTS = {"40001", "40P01"}  # serialization failure, deadlock
# The server ends, has crashed, starts, ended an idle session or transaction; or a standby answers
# for the server that it was promoted away from.
_AWAY = {"57P01", "57P02", "57P03", "57P05", "25P03", "25006"}


def is_disconnect(error: BaseException) -> bool:
    """Say whether the connection is gone, or the server takes none at the moment."""
    sqlstate = sqlstate_of(error)
    if sqlstate in _AWAY:
        return True
    # 08: connection; none at all: the socket went away.
    return not isinstance(error, InternalError) and (not sqlstate or sqlstate.startswith("08"))
