"""Indexes are made beside the running product, and again where a build was cut off."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection, models
from django.db.migrations.state import ProjectState

from criticizer.db.compatibility import judge
from criticizer.db.indexes import AddIndexInService
from reviews.models import ReviewJob

INDEX = models.Index(fields=["title"], name="jobs_probe")


@pytest.mark.django_db(transaction=True)
def test_a_build_that_was_cut_off_is_begun_again() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX jobs_probe ON jobs (author)")
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_probe'::regclass")
    operation = AddIndexInService("reviewjob", INDEX)
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
    migration = import_module("reviews.migrations.0004_active_jobs_by_state").Migration("0004", "reviews")
    state = ProjectState.from_apps(ReviewJob._meta.apps)
    state.models["reviews", "reviewjob"].options["indexes"] = []
    assert list(judge([migration], state)) == []
    assert not migration.atomic
