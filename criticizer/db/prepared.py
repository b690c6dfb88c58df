"""Server-side prepared statements on Django's own connection, for hot statements.

Django binds parameters on the client, so PostgreSQL plans every statement again. Preparing the
claim, record and intake statements halves their cost. They are part of Django's transactions, and
of its log of statements while it keeps one (DEBUG, a test that counts them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from string import Template
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorDebugWrapper
from psycopg.rows import dict_row, tuple_row

from criticizer.db import reconnect

Parameters = Mapping[str, Any] | Sequence[Any]
# Django switches preparing off on its connections, which overrules `prepare=True`. With a threshold
# this high only statements with `prepare=True` are prepared.
_WHEN_ASKED = 2**31


def _execute(sql: str, parameters: Parameters, row_factory: Any) -> list[Any]:
    if connection.connection is not None and connection.connection.closed and not connection.in_atomic_block:
        reconnect.note_loss()
        connection.close()  # outside requests Django does not replace a lost connection
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        connection.connection.prepare_threshold = _WHEN_ASKED
    with (
        connection.wrap_database_errors,
        psycopg.Cursor(connection.connection, row_factory=row_factory) as cursor,
    ):
        with _logged(cursor, sql, parameters) if connection.queries_logged else nullcontext():
            # A pooler gives the session, with its prepared statements, to another client.
            cursor.execute(sql.encode(), parameters, prepare=settings.DATABASE_POOLER == "none")
        return cursor.fetchall() if cursor.description is not None else []


def _logged(cursor: psycopg.Cursor[Any], sql: str, parameters: Parameters) -> AbstractContextManager[None]:
    """Add a statement to Django's log.

    Not through Django's execute wrappers: the one of pghistory puts a statement before ours.
    """
    return CursorDebugWrapper(cursor, connection).debug_sql(sql, parameters)


def rows(sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
    """Run one statement and return its rows as dictionaries (empty when it returns none)."""
    return _execute(sql, parameters, dict_row)


def row(sql: str, parameters: Parameters = ()) -> dict[str, Any] | None:
    """Run one statement and return its first row, or None."""
    found = rows(sql, parameters)
    return found[0] if found else None


def value(sql: str, parameters: Parameters = ()) -> Any:
    """Run one statement and return the first column of its first row, or None."""
    found = _execute(sql, parameters, tuple_row)
    return found[0][0] if found else None


@cache
def statement(text: str, **constants: str | int) -> str:
    """Return SQL with constants of the code, such as `$ACTIVE`, filled in.

    Other values are parameters, never constants. Raises KeyError for a name in the text that is not given.
    """
    return Template(text).substitute(constants)


def sql_list(words: Iterable[str]) -> str:
    """Return constants, such as states, as the list after IN: "('queued', 'running')".

    They are part of the text because with a parameter the planner does not use a partial index. Raises
    ValueError for an empty list and for a word that is not an identifier.
    """
    listed = [str(word) for word in words]
    if not listed or not all(word.isascii() and word.isidentifier() for word in listed):
        raise ValueError(f"not a list of plain words: {listed}")
    return "(" + ", ".join(f"'{word}'" for word in listed) + ")"
