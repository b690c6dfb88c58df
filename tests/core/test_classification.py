"""Every foreign error has one class, and is retried or not."""

from __future__ import annotations

import ast
import errno
import re
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    connection,
)

from criticizer.db import reconnect
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import TABLE, ErrorClass
from reviews.sources.perforce import errors
from reviews.sources.perforce.errors import Outcome, Verdict

RETRIED = {kind.error_class for kind in TABLE.values() if kind.retryable and kind.code != "CRITICIZER_E601"}
APPS = ("criticizer", "reviews", "notifications", "deadletters")


def raised() -> Iterator[tuple[str, str, str, str]]:
    """Yield (where, kind, class, place) of each failure that the code raises with a named class."""
    for app in APPS:
        for path in sorted((settings.BASE_DIR / app).rglob("*.py")):
            text = path.read_text()
            for node in (
                ast.walk(ast.parse(text))
                if re.search(r"(Retryable|Permanent)Failure\(\s*ErrorClass", text)
                else ()
            ):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                    continue
                first = node.args[0]
                if (
                    node.func.id in {"RetryableFailure", "PermanentFailure"}
                    and isinstance(first, ast.Attribute)
                    and isinstance(first.value, ast.Name)
                    and first.value.id == "ErrorClass"
                ):
                    where = f"{path.relative_to(settings.BASE_DIR)}:{node.lineno}"
                    place = node.args[1] if len(node.args) > 1 else None
                    yield (
                        where,
                        node.func.id,
                        first.attr,
                        ast.unparse(place).rpartition(".")[2] if place else "",
                    )


def test_no_place_in_the_code_contradicts_the_table() -> None:
    found = list(raised())
    assert len(found) > 40
    # A lost worker is retried where the queue notices it, and a failure of ours elsewhere.
    lost = ("RetryableFailure", "WORKER_LOST", "QUEUE")
    wrong = [
        each
        for each in found
        if each[1:] != lost and (each[1] == "RetryableFailure") != (ErrorClass[each[2]] in RETRIED)
    ]
    assert wrong == []


def test_no_verdict_on_perforce_contradicts_the_table() -> None:
    verdicts = [
        *(verdict for _, verdict in errors._ROWS),
        *errors._BY_GENERIC.values(),
        *(value for value in vars(errors).values() if isinstance(value, Verdict)),
    ]
    for verdict in verdicts:
        if verdict.outcome is not Outcome.EMPTY:
            assert (verdict.outcome is Outcome.TRANSIENT) == (verdict.error_class in RETRIED), verdict


class _DriverError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


def caused(error: DatabaseError | InterfaceError, sqlstate: str | None) -> BaseException:
    error.__cause__ = _DriverError(sqlstate)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (caused(OperationalError(), "53300"), ErrorClass.DATABASE_UNAVAILABLE),  # too many connections
        (caused(OperationalError(), "53100"), ErrorClass.DATABASE_UNAVAILABLE),  # disk full
        (caused(OperationalError(), "57014"), ErrorClass.DATABASE_UNAVAILABLE),  # statement timeout
        (caused(OperationalError(), "57P03"), ErrorClass.DATABASE_UNAVAILABLE),  # starting up
        (caused(InterfaceError(), None), ErrorClass.DATABASE_UNAVAILABLE),  # the connection is closed
        (caused(InternalError(), "25006"), ErrorClass.DATABASE_UNAVAILABLE),  # a standby answers
        (caused(InternalError(), "25P03"), ErrorClass.DATABASE_UNAVAILABLE),  # idle transaction ended
        (caused(IntegrityError(), "23505"), ErrorClass.WRITE_CONFLICT),
        (psycopg.errors.SerializationFailure(), ErrorClass.WRITE_CONFLICT),
        (psycopg.OperationalError("connection refused"), ErrorClass.DATABASE_UNAVAILABLE),
        # Statements that the schema refuses are defects: repeating them cannot help.
        (caused(IntegrityError(), "23503"), ErrorClass.INTERNAL_BUG),
        (caused(IntegrityError(), "23514"), ErrorClass.INTERNAL_BUG),
        (caused(InternalError(), "25P02"), ErrorClass.INTERNAL_BUG),
        (caused(DatabaseError(), None), ErrorClass.INTERNAL_BUG),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_errors_of_postgresql(error: BaseException, expected: ErrorClass) -> None:
    failure = classify(error)
    assert (failure.error_class, failure.retryable) == (expected, expected in RETRIED)


@pytest.mark.django_db(transaction=True)
def test_a_standby_is_no_place_to_write_and_no_defect() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        with pytest.raises(InternalError) as refused:
            cursor.execute("DELETE FROM outbox_messages")
        cursor.execute("SET default_transaction_read_only = off")
    assert classify(refused.value).error_class is ErrorClass.DATABASE_UNAVAILABLE
    assert reconnect.is_disconnect(refused.value)  # the next connection may find the primary


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_data_directory_that_refuses_is_a_matter_of_the_installation(number: int) -> None:
    failure = classify(OSError(number, "strerror", "/secret/path"))
    assert (failure.error_class, failure.retryable) == (ErrorClass.CONFIG_INVALID, False)
    assert "/secret/path" not in failure.detail


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("x"),
        AssertionError("x"),
        KeyError("x"),
        ConnectionRefusedError(111, "x"),
        MemoryError(),
    ],
)
def test_anything_else_is_our_bug(error: Exception) -> None:
    failure = classify(error)
    assert (failure.error_class, failure.retryable) == (ErrorClass.INTERNAL_BUG, False)
    assert failure.detail == f"unhandled {type(error).__name__}"  # the text may hold anything
