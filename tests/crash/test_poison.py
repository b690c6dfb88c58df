"""A job that kills its worker ends as a dead letter; other jobs of the worker do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.models import OutboxMessage
from deadletters.models import DeadLetter
from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import Attempt, ReviewJob, StageRun
from tests.crash.conftest import SCALE
from tests.crash.poison import NEIGHBOURS, POISON
from tests.stack import eventually, running

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.mark.django_db(transaction=True)
def test_a_poison_job_dies_alone(tmp_path: Path) -> None:
    names = [f"neighbour-{number}" for number in range(NEIGHBOURS)]
    names.insert(NEIGHBOURS // 2, POISON)
    for name in names:
        request_review(ReviewRequest(name, name))
    environment = {
        "RETRY_TIME_SCALE": str(SCALE),
        "TEST_STAGES": "tests.crash.poison",
        "LLM_MAX_CONCURRENCY": "250",
        "DEPOT_ALLOW_LIST": "//demo/...",
    }
    with running(tmp_path, environment=environment):
        eventually(lambda: not ReviewJob.objects.filter(finished_at__isnull=True).exists(), 120)

    job = ReviewJob.objects.get(changelist_id=POISON)
    assert (job.status, job.status_reason) == ("dead_lettered", "WORKER_LOST")
    letter = DeadLetter.objects.get()
    assert (letter.job_id, letter.error_class, letter.attempts) == (job.pk, "WORKER_LOST", 5)

    neighbours = ReviewJob.objects.exclude(pk=job.pk)
    assert set(neighbours.values_list("status", flat=True)) == {"succeeded"}
    # All were in flight beside it when it killed for the first time ...
    lost = Attempt.objects.filter(stage_run__job__in=neighbours, error_class="WORKER_LOST")
    assert len(set(lost.values_list("stage_run", flat=True))) == NEIGHBOURS
    # ... which cost them no attempt, and after the second time it runs alone.
    assert set(lost.values_list("outcome", flat=True)) == {"given_back"}
    attempts = StageRun.objects.filter(job__in=neighbours, stage="llm").values_list("attempts", flat=True)
    assert set(attempts) == {1}
    assert not OutboxMessage.objects.exists()
