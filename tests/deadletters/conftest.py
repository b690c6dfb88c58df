"""Dead letters of jobs whose stages end as a test wants, and a worker in the test's process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure
from deadletters.batches import worker as batch_runs
from deadletters.models import DeadLetter
from reviews.intake import review_requests
from reviews.pipeline import executor
from tests import factories, scripted
from tests.pipeline.conftest import _no_session_left, _scripted  # noqa: F401  autouse here too

DENIED = ("key expired", ErrorClass.AUTH_DENIED)
Fail = Callable[..., DeadLetter]
Work = Callable[[], int]
Look = Callable[[int], float]


def denied(detail: str = "key expired") -> PermanentFailure:
    """Return the failure that most tests begin with."""
    return PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, detail)


@pytest.fixture
def work() -> Work:
    """Run every stage that is due now; return how many messages were claimed."""

    def run() -> int:
        claimed = 0
        while messages := outbox.claim("stages", 10):
            for message in messages:
                if message.message_type != "run_stage":
                    continue
                claimed += 1
                executor.run_stage(message.id, message.aggregate_id, message.lease_token)
        return claimed

    return run


@pytest.fixture
def fail(work: Work) -> Fail:
    """Make a job fail and return its letter; the change artifact is there."""

    def run(changelist: str = "12345", stage: str = "llm", failure: Failure | None = None) -> DeadLetter:
        scripted.SCRIPT[stage].append(failure or denied())
        made = review_requests.request_review(
            review_requests.ReviewRequest(f"failing-{changelist}", changelist, 1)
        )
        work()
        letter = DeadLetter.objects.get(job_id=made.job_id)
        factories.stored_change(letter.job)
        factories.CoverageRowFactory(job=letter.job)
        return letter

    return run


@pytest.fixture
def look() -> Look:
    """Take one look at a batch, at any time of its pace."""

    def run(batch_id: int) -> float:
        prepared.rows("UPDATE replay_batches SET next_item_at = NULL")
        return batch_runs.look(batch_id)

    return run
