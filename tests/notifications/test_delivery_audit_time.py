"""The audit of deliveries: slow receivers use up neither its time nor the turn of others."""

from __future__ import annotations

import time

import pytest
from django.utils import timezone

from criticizer.resilience.failures import ErrorClass
from notifications.delivery import send
from notifications.states import DeliveryStatus
from reviews.models import ReviewJob
from reviews.replay import delivery_audit
from reviews.states import JobStatus
from tests.factories import ReviewJobFactory
from tests.notifications.scripted import ScriptedProvider, not_sent, prepare

SLOW = not_sent(ErrorClass.NETWORK_TIMEOUT)


@pytest.fixture
def job(db: None) -> ReviewJob:
    return ReviewJobFactory(status=JobStatus.SUCCEEDED, finished_at=timezone.now())


@pytest.fixture
def slow(job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> ScriptedProvider:
    """Prepare a review with two slow receivers before a fast one.

    Each of the slow ones uses up a run of `send`.
    """
    prepare(job, *(f"mail:{name}@example.com" for name in "abc"))
    mail.script.extend([SLOW, SLOW])
    monkeypatch.setattr(send, "SENDING_SECONDS", 1e-9)
    monkeypatch.setattr("notifications.config.providers", lambda: {"mail": mail})
    return mail


def states(job: ReviewJob) -> list[str]:
    return list(job.deliveries.order_by("id").values_list("status", flat=True))


def test_rows_behind_slow_receivers_are_sent(job: ReviewJob, slow: ScriptedProvider) -> None:
    report = delivery_audit.run()
    assert report is not None
    assert report.unsettled == 1  # the slow ones come again in the next run
    assert states(job) == [DeliveryStatus.PENDING, DeliveryStatus.PENDING, DeliveryStatus.SENT]


def test_a_review_that_is_not_done_in_time_is_counted(
    job: ReviewJob, slow: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_audit, "SENDING_SECONDS", 0.05)
    slow.before_send = lambda message: time.sleep(0.1)
    report = delivery_audit.run()
    assert report is not None
    assert (report.redelivered, report.unsettled, len(slow.calls)) == (set(), 1, 1)


def test_jobs_of_a_digest_are_sent_within_the_time_too(
    job: ReviewJob, slow: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = delivery_audit.AuditReport(told_together=[job.pk])
    monkeypatch.setattr(delivery_audit, "AuditReport", lambda: report)
    monkeypatch.setattr(delivery_audit, "SENDING_SECONDS", -1.0)
    delivery_audit.run()
    assert (slow.calls, report.unsettled) == ([], 1)
