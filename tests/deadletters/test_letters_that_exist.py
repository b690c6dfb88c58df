"""The migration of letters made by the version before: grouped, and with truthful steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

_JOB = """
INSERT INTO jobs (idempotency_key, request_sha256, changelist_id, review_version, recipients, requested_by,
                  deadline_at, status, finished_at)
VALUES (%s, '', %s, 1, '[]', '', now(), 'dead_lettered', now()) RETURNING id"""
_LETTER = """
INSERT INTO dead_letters (job_id, stage, status, error_class, code, severity, detail, last_stack,
                          sanitized_context, payload_reference, attempts, first_failure_at, last_failure_at,
                          closed_at)
VALUES (%s, 'llm', %s, 'AUTH_DENIED', 'CRITICIZER_E207', 'high', 'key 17 expired', 'E: x',
        '{"status": 401}', '', 1, now(), now(), CASE WHEN %s IN ('resolved', 'discarded') THEN now() END)"""
STATUSES = ("open", "open", "replaying", "resolved", "discarded")


@pytest.fixture
def database(transactional_db: None) -> Iterator[None]:
    """Point Django at an empty database of its own: going back in the suite's would leave it broken."""
    usual = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE letters_that_exist")
    connection.close()
    connection.settings_dict["NAME"] = "letters_that_exist"
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = usual
        with connection.cursor() as cursor:
            cursor.execute("DROP DATABASE letters_that_exist WITH (FORCE)")


def _migrate(name: str) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("deadletters", name)])


def _rows(query: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def test_existing_letters_get_groups_payloads_and_truthful_steps(database: None) -> None:
    _migrate("0001_initial")
    with connection.cursor() as cursor:
        for number, status in enumerate(STATUSES):
            cursor.execute(_JOB, [f"k{number}", str(number)])
            cursor.execute(_LETTER, [cursor.fetchone()[0], status, status])
    _migrate("0004_workflow_rules")

    found = _rows(
        "SELECT l.*, p.last_stack FROM dead_letters l JOIN dead_letter_payloads p ON p.letter_id = l.id"
        " ORDER BY l.id"
    )
    assert [row["status"] for row in found] == ["new", "new", "replaying", "resolved", "discarded"]
    [group] = _rows("SELECT * FROM dead_letter_groups")
    assert {row["group_id"] for row in found} == {group["id"]}
    assert (group["open_count"], group["total_count"]) == (3, 5)
    assert group["normalized_message"] == "key <n> expired"
    assert {row["last_stack"] for row in found} == {"E: x"}
    new, replaying, resolved = found[0], found[2], found[3]
    assert (new["category"], new["evidence_note"]) == ("", "")
    assert replaying["category"] == "auth_config"
    assert replaying["override_reason"] == "before this version: the step was not recorded"
    assert resolved["resolution"] == "resolved before this version"
    assert resolved["verified_by"] == "criticizer"
