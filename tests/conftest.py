"""Shared fixtures: the embedded PostgreSQL of this run, and helpers every room needs."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db.backends.postgresql.operations import DatabaseOperations

from criticizer import sql as database
from criticizer.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedServer]:
    """The real PostgreSQL of this run."""
    server = EmbeddedServer(settings.DATA_DIR, fsync="off")  # flushing tables between tests, not power cuts
    server.start()
    yield server
    server.stop("immediate")
    shutil.rmtree(settings.DATA_DIR, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: EmbeddedServer) -> None:
    """Start PostgreSQL before pytest-django makes the test database."""


def _flush_past_append_only(self: DatabaseOperations, sql_list: list[str]) -> None:
    """Empty the tables between transactional tests although some refuse TRUNCATE."""
    with self.connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            for sql in sql_list:
                cursor.execute(sql)
        finally:
            cursor.execute("SET session_replication_role = origin")


@pytest.fixture(scope="session", autouse=True)
def _flush() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(DatabaseOperations, "execute_sql_flush", _flush_past_append_only)
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _never_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that one test took away must not make the next one careful."""
    monkeypatch.setattr(database, "_lost_at", -math.inf)


@pytest.fixture(autouse=True)
def _private_storages(settings: Any, tmp_path: Any) -> None:
    """Artifacts and mail of a test lie in the test's own directory."""
    storages = {name: {**value} for name, value in settings.STORAGES.items()}
    for name in ("artifacts_raw", "artifacts_redacted"):
        storages[name]["OPTIONS"] = {**storages[name]["OPTIONS"], "location": tmp_path / name}
    settings.STORAGES = storages
    settings.MAILDIR = tmp_path / "mail"
