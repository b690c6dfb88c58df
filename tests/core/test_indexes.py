"""Indexes are made beside the running product, and again where a build was cut off."""

from __future__ import annotations

import pytest
from django.db import connection, migrations, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from criticizer.db.compatibility import judge
from criticizer.db.indexes import AddIndexRetryably, AddUniqueRetryably
from reviews.models import ReviewJob

OPERATIONS = [
    AddIndexRetryably("reviewjob", models.Index(fields=["title"], name="jobs_probe")),
    AddUniqueRetryably(
        "reviewjob",
        models.UniqueConstraint(
            fields=["title"], condition=models.Q(finished_at__isnull=True), name="jobs_probe"
        ),
    ),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", OPERATIONS, ids=["index", "unique"])
def test_a_build_that_was_cut_off_is_begun_again(operation: Operation) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX jobs_probe ON jobs (author)")
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_probe'::regclass")
    before = ProjectState.from_apps(ReviewJob._meta.apps)
    after = before.clone()
    operation.state_forwards("reviews", after)
    try:
        with connection.schema_editor(atomic=False) as editor:
            operation.database_forwards("reviews", editor, before, after)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT indisvalid, pg_get_indexdef(indexrelid) FROM pg_index"
                " WHERE indexrelid = 'jobs_probe'::regclass"
            )
            valid, definition = cursor.fetchone()
        assert valid
        assert "(title)" in definition
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX jobs_probe")


@pytest.mark.django_db
def test_an_older_version_can_live_with_one() -> None:
    migration = migrations.Migration("0999_index", "reviews")
    migration.operations = OPERATIONS[:1]
    assert list(judge([migration], ProjectState.from_apps(ReviewJob._meta.apps))) == []


@pytest.mark.django_db
def test_no_index_of_jobs_holds_the_state() -> None:
    """No index of jobs holds the state: with one, each claim would write to all indexes.

    PostgreSQL makes no HOT update then.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT d.objid::regclass::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid"
            " JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid"
            " WHERE d.refobjid = 'jobs'::regclass AND c.relkind = 'i' AND a.attname = ANY(%s) ORDER BY 1",
            [["status", "status_reason"]],
        )
        assert cursor.fetchall() == []
