"""An outage of a dependency that many jobs need: none is lost, and few attempts are used up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.models import Circuit, CircuitEvent
from criticizer.queue.lease_renewer import LeaseRenewer
from criticizer.resilience import gate
from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitState
from deadletters.models import DeadLetter
from reviews.models import Attempt, ReviewJob, StageRun
from reviews.pipeline import StageClaim, executor
from reviews.pipeline.executor import Written
from reviews.states import AttemptOutcome, JobStatus
from tests import scripted

pytestmark = pytest.mark.django_db(transaction=True)
LLM = "llm:openai"


class Model:
    """The model's present answer: a failure, or none."""

    failure: Failure | None = None
    calls = 0


def llm(claim: StageClaim) -> Written:
    with gate.guarded(LLM):
        Model.calls += 1
        if Model.failure is not None:
            raise Model.failure
    return None


@pytest.fixture(autouse=True)
def _model(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # No lease runs out within a test, and a heartbeat's own connection would outlive the database.
    monkeypatch.setattr(executor, "LEASE_RENEWER", LeaseRenewer(lambda held: held))
    settings.STAGES = {**scripted.STAGES, "llm": (f"{__name__}.llm", "stages")}
    CHECKS.clear()
    gate.forget()
    Model.failure, Model.calls = None, 0


@pytest.fixture
def cool_down(make_due: Callable[[], None]) -> Callable[[], None]:
    """Let the cool-down and every wait be over."""

    def run() -> None:
        prepared.rows("UPDATE circuits SET retry_at = now() - interval '1 second' WHERE state = 'open'")
        make_due()

    return run


def counted() -> int:
    """Return how many attempts of the stage were used up."""
    return Attempt.objects.filter(stage_run__stage="llm", outcome=AttemptOutcome.FAILED).count()


@pytest.mark.parametrize("jobs", [40, pytest.param(200, marks=pytest.mark.long)])
def test_a_long_outage_under_waiting_jobs_costs_what_opened_the_circuit(
    jobs: int, post: Callable[..., Any], work: Callable[[], int], cool_down: Callable[[], None]
) -> None:
    Model.failure = RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.REVIEWER, "503")
    for number in range(jobs):
        post(f"k{number}", str(number + 1))
    work()
    for _ in range(5):  # cool-down after cool-down: one probe each
        cool_down()
        work()
    assert (counted(), Model.calls) == (10, 15)
    assert not DeadLetter.objects.exists()
    assert sum(StageRun.objects.filter(stage="llm").values_list("attempts", flat=True)) == 10

    Model.failure = None
    cool_down()
    work()
    while work_left():
        cool_down()
        work()
    assert ReviewJob.objects.filter(status=JobStatus.SUCCEEDED).count() == jobs
    assert Circuit.objects.get(pk=LLM).state == CircuitState.CLOSED
    assert CircuitEvent.objects.filter(name=LLM, change="closed").count() == 1


@pytest.mark.parametrize("jobs", [20, pytest.param(50, marks=pytest.mark.long)])
def test_refused_credentials_end_a_handful_of_jobs_and_the_rest_goes_on_after_the_key_is_mended(
    jobs: int, post: Callable[..., Any], work: Callable[[], int], cool_down: Callable[[], None]
) -> None:
    Model.failure = PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, "401")
    for number in range(jobs):
        post(f"k{number}", str(number + 1))
    work()
    for _ in range(3):
        cool_down()
        work()
    assert DeadLetter.objects.count() == 3

    Model.failure = None
    while work_left():
        cool_down()
        work()
    assert ReviewJob.objects.filter(status=JobStatus.SUCCEEDED).count() == jobs - 3


def work_left() -> bool:
    return ReviewJob.objects.filter(status__in=[JobStatus.QUEUED, JobStatus.IN_PROGRESS]).exists() or (
        ReviewJob.objects.filter(status=JobStatus.RETRYABLE_FAILED).exists()
    )
