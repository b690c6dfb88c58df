"""Waiting for a dependency uses no attempt (guarantee G15)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.models import Circuit, OutboxMessage
from criticizer.queue import outbox
from criticizer.resilience import circuit_breaker, gate
from criticizer.resilience.failures import Component, DependencyUnavailable, ErrorClass, RetryableFailure
from deadletters.models import DeadLetter
from reviews import pipeline
from reviews.models import Attempt, ReviewJob, StageRun
from reviews.states import JobStatus, StageStatus
from tests import scripted

pytestmark = pytest.mark.django_db(transaction=True)
Post = Callable[..., Any]
Work = Callable[[], int]

AWAY = DependencyUnavailable("llm:openai", 30.0, "its circuit is open")


def still_away(name: str) -> None:
    raise DependencyUnavailable(name, 30.0)


def test_a_stage_that_waits_gives_its_attempt_back(post: Post, work: Work) -> None:
    post()
    scripted.SCRIPT["llm"].append(AWAY)

    work()

    run = StageRun.objects.get(stage="llm")
    assert (run.status, run.attempts) == (StageStatus.PENDING, 0)
    assert run.next_attempt_at is not None
    message = OutboxMessage.objects.get()
    assert (message.waiting_for, message.lease_token) == ("llm:openai", None)
    assert prepared.value("SELECT available_at > now() + interval '25 s' FROM outbox_messages")
    attempt = Attempt.objects.get(stage_run=run)
    assert attempt.outcome == "given_back"
    assert "llm:openai" in attempt.detail


def test_work_that_waited_goes_on_with_its_whole_budget(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    post()
    scripted.SCRIPT["llm"].append(AWAY)
    work()
    make_due()
    work()
    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED
    assert StageRun.objects.get(stage="llm").attempts == 1


def test_a_long_outage_leaves_one_attempt_in_the_history(
    post: Post, work: Work, make_due: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    post()
    scripted.SCRIPT["llm"].append(AWAY)
    work()
    circuit_breaker.create("llm:openai")
    monkeypatch.setattr(gate, "check", still_away)
    for _ in range(5):
        make_due()
        work()
    assert Attempt.objects.filter(stage_run__stage="llm").count() == 1
    assert StageRun.objects.get(stage="llm").attempts == 0
    assert OutboxMessage.objects.get().waiting_for == "llm:openai"


def test_waiting_does_not_hide_the_failures_before_it(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    post()
    down = RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.REVIEWER, "503")
    scripted.SCRIPT["llm"].extend([down, AWAY, down])
    for _ in range(3):
        work()
        make_due()
    assert StageRun.objects.get(stage="llm").attempts == 2


def test_a_lost_database_ends_no_review(post: Post, work: Work, make_due: Callable[[], None]) -> None:
    """A failover may come in the last attempt of a stage: the review must not pay for it."""
    post()
    down = RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.REVIEWER, "503")
    lost = RetryableFailure(ErrorClass.DATABASE_UNAVAILABLE, Component.DATABASE, "the connection failed")
    budget = StageRun.objects.get(stage="llm").max_attempts
    scripted.SCRIPT["llm"].extend([down] * (budget - 1) + [lost, lost])
    for _ in range(budget + 1):
        work()
        make_due()
    run = StageRun.objects.get(stage="llm")
    assert (run.status, run.attempts) == (StageStatus.PENDING, budget - 1)
    assert Attempt.objects.filter(stage_run=run, outcome="given_back").count() == 2

    work()

    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED
    assert not DeadLetter.objects.exists()


def test_a_database_that_stays_lost_to_a_review_ends_it_at_its_deadline(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    post()
    lost = RetryableFailure(ErrorClass.DATABASE_UNAVAILABLE, Component.DATABASE, "the connection failed")
    budget = StageRun.objects.get(stage="llm").max_attempts
    scripted.SCRIPT["llm"].extend([lost] * (budget + 2))
    for _ in range(budget + 1):
        work()
        make_due()
    ReviewJob.objects.update(deadline_at=Now() - timedelta(seconds=1))

    work()

    assert ReviewJob.objects.get().status == JobStatus.TIMED_OUT


def test_work_that_waited_for_a_slot_makes_no_circuit_of_it(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    """Operators see circuits for a week: a slot of receivers is none."""
    post()
    scripted.SCRIPT["llm"].append(DependencyUnavailable("provider:webhook#slow", 30.0))
    work()
    make_due()
    work()
    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED
    assert not Circuit.objects.exists()


def test_a_wake_makes_waiting_work_due_one_after_another(
    post: Post, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WAKE_PER_SECOND", 0.1)
    for number in range(4):
        post(key=f"k{number}", changelist=str(number + 1))
        scripted.SCRIPT["llm"].append(AWAY)
    work()

    assert outbox.wake("llm:another") == 0
    assert outbox.wake("llm:openai") == 4

    due = prepared.rows(
        "SELECT waiting_for, extract(epoch FROM available_at - now())::int AS seconds"
        "  FROM outbox_messages ORDER BY available_at"
    )
    assert [row["waiting_for"] for row in due] == [""] * 4
    assert due[0]["seconds"] <= 0
    assert 8 <= due[1]["seconds"] <= 10
    assert all(row["seconds"] <= 30 for row in due)  # never later than it would have been


def test_a_stage_whose_job_ended_does_not_wait(post: Post, work: Work) -> None:
    job_id = post().job_id

    def step(claim: pipeline.StageClaim) -> None:
        pipeline.cancel(job_id, "olga", "not needed")
        raise AWAY

    scripted.SCRIPT["llm"].append(step)
    work()
    assert ReviewJob.objects.get().status == JobStatus.CANCELLED
    assert not OutboxMessage.objects.exists()


# -- not beyond the deadline ----------------------------------------------------------------------

FAILED = RetryableFailure(ErrorClass.RATE_LIMITED, Component.REVIEWER, "429", retry_after_seconds=250.0)
FROM_DEADLINE = """
SELECT extract(epoch FROM o.available_at - j.deadline_at)::int AS message,
       extract(epoch FROM s.next_attempt_at - j.deadline_at)::int AS stage
  FROM outbox_messages o JOIN stage_runs s ON s.id = o.aggregate_id JOIN jobs j ON j.id = s.job_id"""


def deadline_in(seconds: int) -> None:
    ReviewJob.objects.update(deadline_at=Now() + timedelta(seconds=seconds))


@pytest.mark.parametrize("trouble", [AWAY, FAILED], ids=["waits", "failed"])
def test_work_is_due_at_its_deadline_at_the_latest_and_ends_there_without_a_sweep(
    post: Post, work: Work, make_due: Callable[[], None], monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    post()
    deadline_in(20)
    scripted.SCRIPT["llm"].append(trouble)
    work()
    assert prepared.row(FROM_DEADLINE) == {"message": 0, "stage": 0}
    deadline_in(0)
    make_due()
    circuit_breaker.create("llm:openai")
    monkeypatch.setattr(gate, "check", still_away)
    work()
    assert ReviewJob.objects.get().status == JobStatus.TIMED_OUT
    assert not OutboxMessage.objects.exists()
    assert StageRun.objects.get(stage="llm").attempts == (trouble is FAILED)


def test_waiting_work_is_postponed_to_its_deadline_at_most(
    post: Post, work: Work, make_due: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    post()
    scripted.SCRIPT["llm"].append(AWAY)
    work()
    assert prepared.row(FROM_DEADLINE) == {"message": 30 - 1200, "stage": 30 - 1200}
    circuit_breaker.create("llm:openai")
    monkeypatch.setattr(gate, "check", still_away)
    deadline_in(20)
    make_due()
    work()
    assert prepared.row(FROM_DEADLINE) == {"message": 0, "stage": 0}
    assert OutboxMessage.objects.get().waiting_for == "llm:openai"
