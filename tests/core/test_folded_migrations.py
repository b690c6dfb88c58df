"""A database that ran only some of the migrations that were folded into one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from criticizer.observability import health

pytestmark = pytest.mark.django_db(transaction=True)
# What a database lacks whose commit is from before the last fold, and one from before both.
LAST = ("reviews", "0010_indexes_without_the_state")
EARLY = ("deadletters", "0003_alerts_sent_once")


@pytest.fixture(params=[LAST, EARLY], ids=["last", "early"])
def app(request: pytest.FixtureRequest) -> Iterator[str]:
    """Take a folded migration from those that the database ran, and return its app."""
    recorder = MigrationRecorder(connection)
    assert request.param in recorder.applied_migrations()
    recorder.record_unapplied(*request.param)
    yield request.param[0]
    recorder.record_applied(*request.param)


def test_a_database_that_ran_all_has_nothing_to_run() -> None:
    said = StringIO()
    call_command("migrate", stdout=said)
    assert "No migrations to apply." in said.getvalue()


@pytest.mark.parametrize("command", ["migrate", "check_compatibility"])
def test_a_database_that_ran_some_is_refused(app: str, command: str) -> None:
    before = MigrationRecorder(connection).applied_migrations().keys()
    with pytest.raises(CommandError, match=f"ran some of the migrations of {app} that are.*CHANGELOG.md"):
        call_command(command, verbosity=0)
    assert MigrationRecorder(connection).applied_migrations().keys() == before


def test_a_database_that_ran_some_is_not_ready(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_migrated", False)
    assert not health.is_migrated()
