"""Schema changes that retry short lock attempts, so that other sessions are not blocked."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import errors, sql

LOCK_SECONDS = 2.0  # a statement waits so long for a lock, and other sessions wait behind it
PAUSE_SECONDS = 2.0  # between two tries; the other sessions run

_OF_TRANSACTIONS = re.compile(r"\s*(SAVEPOINT|RELEASE|ROLLBACK)\b", re.IGNORECASE)


@contextmanager
def in_turns(connection: BaseDatabaseWrapper, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Retry each statement of the block until it gets its locks; pause between tries (G586).

    PostgreSQL grants the locks of a table in the order of requests: a change that waits for one long reader
    would block every request that comes after it. Other sessions run in the pauses. Locks that the
    transaction already holds stay held. An index made CONCURRENTLY blocks no other session, so its statement
    has no time limit. `on_wait` is called once with the text of each statement that has to wait.
    """

    def limit(seconds: float) -> None:
        connection.connection.execute(f"SET lock_timeout = {int(seconds * 1000)}")

    def run(execute: Callable[..., Any], statement: Any, *rest: Any) -> Any:
        is_composed = isinstance(statement, sql.Composable)
        text = statement.as_string(connection.connection) if is_composed else statement
        if _OF_TRANSACTIONS.match(text):
            return execute(statement, *rest)
        if "CONCURRENTLY" in text:
            limit(0)
            try:
                return execute(statement, *rest)
            finally:
                limit(LOCK_SECONDS)
        is_told = False
        while True:
            try:
                with _savepoint(connection):
                    return execute(statement, *rest)
            except OperationalError as error:
                if not isinstance(error.__cause__, errors.LockNotAvailable):
                    raise
            if not is_told:
                on_wait(text)
                is_told = True
            time.sleep(PAUSE_SECONDS)

    connection.ensure_connection()
    limit(LOCK_SECONDS)
    try:
        with connection.execute_wrapper(run):
            yield
    finally:
        if connection.is_usable():
            limit(0)


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Set a savepoint for the block, so that a transaction around it survives its failure.

    Executed by psycopg itself: Django's cursors would call the wrapper of `in_turns` again.
    """
    if not connection.in_atomic_block:
        yield
        return
    session = connection.connection
    session.execute("SAVEPOINT before_locks")
    try:
        yield
    except BaseException:
        session.execute("ROLLBACK TO SAVEPOINT before_locks; RELEASE SAVEPOINT before_locks")
        raise
    session.execute("RELEASE SAVEPOINT before_locks")
