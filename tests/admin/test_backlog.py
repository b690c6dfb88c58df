"""Searches by error and state find rows behind a long backlog, which is listed first."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from criticizer.admin_site import newest_matches
from reviews import search
from reviews.models import ReviewJob, StageRun
from tests import factories
from tests.admin.test_keyset_lists import JOBS, copied, found, ids

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    return client


@pytest.fixture(scope="module")
def backlog(module_db: None) -> list[ReviewJob]:
    """Return 600 reviews that failed, oldest first, behind 3,000 newer ones that wait."""
    start = timezone.now() - timedelta(days=1)
    dead = factories.ReviewJobFactory.build(status="dead_lettered", finished_at=start)
    failed = ReviewJob.objects.bulk_create(
        [copied(dead, n, created_at=start + timedelta(seconds=n)) for n in range(600)]
    )
    run = factories.StageRunFactory.build(job=dead, status="failed", error_class="RATE_LIMITED")
    StageRun.objects.bulk_create([copied(run, job=job) for job in failed])
    queued = factories.ReviewJobFactory.build()
    ReviewJob.objects.bulk_create([copied(queued, n) for n in range(3000)])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs; ANALYZE stage_runs")
    return failed


def plan_of(asked: CaptureQueriesContext, part: str) -> str:
    """Run the query of a page again, by indexes alone; return its plan with the rows read."""
    (listed,) = [query["sql"] for query in asked if part in query["sql"] and "LIMIT 51" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {listed}")
        return "\n".join(line for (line,) in cursor.fetchall())


def test_reviews_with_an_error_are_found_behind_a_backlog(
    root: Client, backlog: list[ReviewJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL would read the whole backlog, which comes first in the order of the list."""
    monkeypatch.setattr(newest_matches, "WINDOWS", ())  # as for other orders
    with CaptureQueriesContext(connection) as asked:
        assert found(root, "error:RATE_LIMITED") == {job.pk for job in backlog[-50:]}
    plan = plan_of(asked, "RATE_LIMITED")
    assert "jobs_pkey" in plan
    assert "jobs_newest" not in plan
    # One walk through the index: not one for each of 600 reviews, which lie side by side here.
    searches = re.search(r"using jobs_pkey .*?Index Searches: ([0-9]+)", plan, re.DOTALL)
    assert searches is not None
    assert int(searches[1]) < 60


def test_reviews_without_an_error_are_read_in_the_order_of_the_list(
    root: Client, backlog: list[ReviewJob]
) -> None:
    with CaptureQueriesContext(connection) as asked:
        others = found(root, "-error:RATE_LIMITED")
    assert len(others) == 50
    assert not others & {job.pk for job in backlog}
    assert "Sort Key" not in plan_of(asked, "NOT (")
    oldest = root.get(JOBS, {"q": "-error:RATE_LIMITED", "by": "oldest"})
    assert not set(ids(oldest)) & {job.pk for job in backlog}
    assert len(ids(oldest)) == 50


def test_many_reviews_with_an_error_are_read_in_the_order_of_the_list(
    root: Client, backlog: list[ReviewJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_RARE_STAGES", 100)
    assert found(root, "error:RATE_LIMITED") == {job.pk for job in backlog[-50:]}
    others = found(root, "-error:RATE_LIMITED")
    assert len(others) == 50
    assert not others & {job.pk for job in backlog}


def test_a_list_of_ended_reviews_begins_behind_the_backlog(root: Client, backlog: list[ReviewJob]) -> None:
    with CaptureQueriesContext(connection) as asked:
        assert found(root, "state:dead_lettered,succeeded") == {job.pk for job in backlog[-50:]}
    plan = plan_of(asked, "dead_lettered")
    assert "jobs_newest" not in plan
    assert "Rows Removed by Filter" not in plan
    assert not found(root, "state:succeeded")
    assert len(found(root, "state:queued,dead_lettered")) == 50
