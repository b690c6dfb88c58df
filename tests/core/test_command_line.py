"""A command whose database is not there, or not migrated, says so and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection

from criticizer.db.error_hints import why_database


def run(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_DATA_DIR": str(tmp_path),
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_a_key_cannot_be_made_before_the_migrations(tmp_path: Path) -> None:
    """Other tests make keys after the migrations.

    tests/demo/test_run.py migrates a new database; the tests of keys make them.
    """
    refused = run(tmp_path, "create_api_key", "--name", "ci", "--role", "trigger")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.splitlines()[-1] == (
        "criticizer: the database's tables are missing or older than this version. Run: manage.py migrate"
    )
    assert "Traceback" not in refused.stderr


def test_a_database_that_cannot_be_reached_is_a_sentence(tmp_path: Path) -> None:
    refused = run(
        tmp_path, "unlock_login", "ann", DATABASE_URL="postgres://ann:hunter2hunter2@127.0.0.1:1/nothing",
        SECRET_KEY="not-a-real-key-" * 4, ARTIFACT_KEYS="A" * 43 + "=",
    )  # fmt: skip
    assert refused.returncode == 1
    assert "criticizer: the database cannot be reached: " in refused.stderr
    assert "DATABASE_URL" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "hunter2" not in refused.stderr


@pytest.mark.long
def test_a_command_collects_garbage_and_leaves_out_what_was_loaded_before_it(tmp_path: Path) -> None:
    question = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    said = run(tmp_path, "shell", "--no-imports", "-c", question, DATABASE_URL="postgres://ann@127.0.0.1:1/none",
               SECRET_KEY="not-a-real-key-" * 4, ARTIFACT_KEYS="A" * 43 + "=")  # fmt: skip
    assert said.stdout == "True True\n", said.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", ["SELECT * FROM no_such_table", "SELECT 1 / 0"])
def test_a_defect_of_ours_stays_one(statement: str) -> None:
    """Every migration is applied here, so no `migrate` would create the missing table."""
    with pytest.raises(DatabaseError) as wrong, connection.cursor() as cursor:
        cursor.execute(statement)
    assert not isinstance(wrong.value, OperationalError)
    assert why_database(wrong.value) == ""
