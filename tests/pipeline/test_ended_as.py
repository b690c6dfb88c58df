"""The column of how a review ended, whichever version of the product wrote its state."""

from __future__ import annotations

import pytest
from django.db import connection

from reviews.models import ReviewJob
from reviews.search import in_states
from reviews.states import ACTIVE_JOB, RARE_JOB, JobStatus
from tests import factories

pytestmark = pytest.mark.django_db


def ended_as() -> dict[str, str]:
    return dict(ReviewJob.objects.values_list("status", "ended_as"))


def test_states_and_how_a_review_ended_belong_together() -> None:
    for status in JobStatus:
        factories.ReviewJobFactory(status=status)
    assert ended_as() == {status: status.value if status in RARE_JOB else "" for status in JobStatus}
    assert {JobStatus.SUCCEEDED, *ACTIVE_JOB, *RARE_JOB} == set(JobStatus)


def test_an_older_version_that_writes_the_state_alone_writes_how_it_ended() -> None:
    job = factories.ReviewJobFactory(status="in_progress")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs SET status = 'timed_out', finished_at = now()")
        assert ended_as() == {"timed_out": "timed_out"}
        cursor.execute("UPDATE jobs SET ended_as = ''")  # nothing else decides it
        assert ended_as() == {"timed_out": "timed_out"}
        cursor.execute("UPDATE jobs SET status = 'queued', finished_at = NULL")
        assert ended_as() == {"queued": ""}
    job.refresh_from_db()
    job.title = "Resize"
    job.save()
    assert ended_as() == {"queued": ""}


def test_rare_reviews_are_listed_from_their_index() -> None:
    succeeded = [factories.ReviewJobFactory.build(status="succeeded") for _ in range(500)]
    ReviewJob.objects.bulk_create(succeeded)
    rare = factories.ReviewJobFactory(status="cancelled")
    for states in (["cancelled"], ["cancelled", "superseded"]):
        listed = ReviewJob.objects.filter(in_states(states)).order_by("-created_at", "-id")[:51]
        assert list(listed) == [rare]
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE jobs; SET LOCAL enable_seqscan = off")
        assert "jobs_ended_otherwise" in listed.explain()
