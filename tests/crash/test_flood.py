"""A flood of requests of one key delays only that key (guarantee G140)."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import ReviewJob
from tests.stack import eventually, running

pytestmark = pytest.mark.cluster

FLOOD = 300


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_single_review_does_not_wait_for_a_flood_of_another_key(tmp_path: Path) -> None:
    for number in range(FLOOD):
        request_review(ReviewRequest(f"flood-{number}", f"{number + 1}", requested_by="key:flood"))
    flood = ReviewJob.objects.filter(requested_by="key:flood")
    environment = {"TEST_STAGES": "tests.crash.flood", "LLM_MAX_CONCURRENCY": "4"}
    with running(tmp_path, environment=environment):
        eventually(lambda: flood.filter(status="succeeded").exists())
        result = request_review(ReviewRequest("single", "1000000", requested_by="key:single"))
        single = ReviewJob.objects.filter(pk=result.job_id)
        eventually(lambda: single.filter(status="succeeded").exists())
        assert flood.filter(finished_at__isnull=True).count() > FLOOD // 2
