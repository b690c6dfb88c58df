"""`migrate` beside a running product: work that queues behind it runs first (G586)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.utils import ProgrammingError

from criticizer.db import prepared, schema_locks
from tests.beside import Beside, session
from tests.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_locks, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(schema_locks, "PAUSE_SECONDS", 0.1)


@contextmanager
def holds(lock: str) -> Iterator[psycopg.Connection[Any]]:
    """Open another session, in a transaction that has locked a table."""
    with session() as other:
        other.execute("SET lock_timeout = '60s'")
        other.execute(lock)
        yield other


@contextmanager
def beside(holder: psycopg.Connection[Any], work: Callable[[], object]) -> Iterator[Beside]:
    """Do some work beside the block, and end what `holder` holds with it."""
    running = Beside(work)
    try:
        yield running
    finally:
        holder.rollback()
        running.join()
    assert running.result is None


def test_a_writer_that_comes_while_migrate_waits_runs_before_it() -> None:
    said = io.StringIO()
    writes = "LOCK TABLE security_events IN ROW EXCLUSIVE MODE"
    migrate = partial(call_command, "migrate", verbosity=0, stderr=said)
    with holds(writes) as first, beside(first, migrate):
        eventually(said.getvalue)
        with holds(writes):
            pass  # it has its lock, while the first one still has its own
    (line,) = said.getvalue().splitlines()
    assert line.startswith("migrate: others use the table of this statement; it is tried again")
    assert "ON security_events" in line.replace('"', "")


def test_a_transaction_keeps_what_it_did_before_it_waited() -> None:
    told: list[str] = []

    def change() -> None:
        with (
            schema_locks.in_turns(connection, told.append),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE TABLE probe ()")
            cursor.execute("ALTER TABLE jobs ADD COLUMN probe integer")

    with holds("SELECT 1 FROM jobs") as reader, beside(reader, change):
        eventually(lambda: told)
    with connection.cursor() as cursor:
        cursor.execute("SELECT probe FROM jobs")
        cursor.execute("ALTER TABLE jobs DROP COLUMN probe; DROP TABLE probe")
    assert told == ["ALTER TABLE jobs ADD COLUMN probe integer"]


def test_an_index_that_keeps_nobody_waiting_waits_as_long_as_it_has_to() -> None:
    made = "CREATE INDEX CONCURRENTLY jobs_probe ON jobs (title)"
    told: list[str] = []

    def change() -> None:
        with schema_locks.in_turns(connection, told.append), connection.cursor() as cursor:
            cursor.execute(made)

    waits_for_long = (
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = %(pid)s AND wait_event_type = 'Lock'"
        " AND clock_timestamp() - query_start > interval '0.5 seconds'"
    )
    with holds("LOCK TABLE jobs IN ROW EXCLUSIVE MODE") as writer, beside(writer, change) as building:
        eventually(lambda: prepared.value(waits_for_long, {"pid": building.pid}))
    with connection.cursor() as cursor:
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'jobs_probe'::regclass")
        assert cursor.fetchone() == (True,)
        cursor.execute("DROP INDEX jobs_probe")
    assert told == []


def test_other_failures_of_a_statement_stay_what_they_are() -> None:
    told: list[str] = []
    with (
        pytest.raises(ProgrammingError, match="no_such_table"),
        schema_locks.in_turns(connection, told.append),
        connection.cursor() as cursor,
    ):
        cursor.execute("ALTER TABLE no_such_table ADD COLUMN probe integer")
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)
    assert told == []
