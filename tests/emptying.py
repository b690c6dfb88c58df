"""Empty the tables between transactional tests.

Django's own way truncates every table and makes content types, permissions and roles anew. Here
only the tables that have rows are emptied, and the rows that migrations made come back from a
copy: a tenth of the time, and the ids stay. Small tables lose their rows, large ones are truncated:
that makes new files for the table, for its indexes and for all that refers to it.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import OperationalError, connections, transaction
from psycopg import sql
from psycopg.errors import DeadlockDetected, LockNotAvailable

_GIVEN_WAY = (DeadlockDetected, LockNotAvailable)
_COPIES = "as_migrated"
_MIGRATED = ("django_content_type", "auth_permission", "auth_group", "auth_group_permissions")
_NEVER = ("django_migrations",)
_SMALL_BYTES = 128 * 1024  # what removed rows still take up in a table, at most
_TURNS = 120  # after as many in a row, a minute of waiting, it is no chance
_USED_TABLES = """
SELECT relname, pg_table_size(oid) FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND NOT relname = ANY(%s)
   AND pg_relation_size(oid) > 0 ORDER BY relname"""


def keep_what_migrations_made(database: str = "default") -> None:
    """Copy the rows of a database that has just been migrated."""
    with connections[database].cursor() as cursor:
        cursor.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(_COPIES)))
        for name in _MIGRATED:
            copy, table = sql.Identifier(_COPIES, name), sql.Identifier(name)
            cursor.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, table))


def empty(database: str = "default") -> None:
    """Make the database as its migrations left it, despite triggers and references.

    A cluster that serves a whole module may be at work. In a deadlock with it, this session gives way and
    begins again. PostgreSQL looks for a deadlock once in a wait. One that arises later would be found by the
    other session, a second after that began to wait; this session has given up by then.
    """
    for turn in count(1):
        try:
            _empty(database)
        except OperationalError as error:
            if turn == _TURNS or not isinstance(error.__cause__, _GIVEN_WAY):
                raise
        else:
            break
    ContentType.objects.clear_cache()


def _empty(database: str) -> None:
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica; SET LOCAL deadlock_timeout = '50ms'")
        cursor.execute("SET LOCAL lock_timeout = '500ms'")
        cursor.execute(_USED_TABLES, [[*_MIGRATED, *_NEVER]])
        if used := dict(cursor.fetchall()):
            cursor.execute(sql.SQL(" UNION ALL ").join(map(_has_rows, used)))
            _remove_rows(cursor, {name: used[name] for (name,) in cursor.fetchall()})
        for name in _MIGRATED:
            _restore(cursor, name)


def make_as_new(*tables: str) -> None:
    """Make tables look new to the planner until the transaction ends, for a test of a plan.

    They get the pages and statistics of new tables, as the plan of a small table depends on what earlier
    rows have left. Tables that refer to them lose their rows.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    with connections["default"].cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))
        cursor.execute("SET LOCAL session_replication_role = origin")
        cursor.execute(
            "DELETE FROM pg_statistic WHERE starelid = ANY(%s::text[]::regclass[])", [list(tables)]
        )


def _has_rows(name: str) -> sql.Composed:
    return sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(sql.Literal(name), sql.Identifier(name))


def _remove_rows(cursor: Any, filled: dict[str, int]) -> None:
    """Empty the tables, given with their sizes, when no other session is at work in any of them."""
    tables = [sql.Identifier(name) for name in filled]
    if tables:
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.SQL(", ").join(tables)))
    if large := [sql.Identifier(name) for name, size in filled.items() if size > _SMALL_BYTES]:
        cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(large)))
    for table in tables:
        cursor.execute(sql.SQL("DELETE FROM {}").format(table))


def _restore(cursor: Any, name: str) -> None:
    copy, table = sql.Identifier(_COPIES, name), sql.Identifier(name)
    for statement in (
        "DELETE FROM {table} WHERE id IN (SELECT id FROM (TABLE {table} EXCEPT TABLE {copy}) other)",
        "INSERT INTO {table} SELECT * FROM {copy} EXCEPT SELECT * FROM {table}",
    ):
        cursor.execute(sql.SQL(statement).format(table=table, copy=copy))
