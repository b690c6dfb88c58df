"""Intake of review requests (guarantees G1 to G4)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from criticizer.models import OutboxMessage
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, ReviewRequest, request_review
from reviews.models import ReviewJob, StageRun
from reviews.states import JobStatus
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)  # now() stands still inside one transaction


def test_a_request_makes_job_stages_and_first_message_together(post: Callable[..., Any]) -> None:
    result = post(recipients=("mail:ann@example.com",))
    job = ReviewJob.objects.get(pk=result.job_id)
    assert result.outcome is IntakeOutcome.CREATED
    assert (job.status, job.recipients) == (JobStatus.QUEUED, ["mail:ann@example.com"])
    assert [s.stage for s in job.stages.order_by("id")] == ["fetch", "llm", "notify"]
    assert OutboxMessage.objects.get().aggregate_id == job.stages.get(stage="fetch").pk
    assert (job.deadline_at - job.created_at).total_seconds() == pytest.approx(1200, abs=1)


def test_the_same_key_returns_the_original_whatever_the_body(post: Callable[..., Any]) -> None:
    first = post("k1", "12345")
    again = post("k1", "12345")
    other = post("k1", "99999", 7, rerun=True)
    assert (again.outcome, again.job_id, again.payload_mismatch) == (
        IntakeOutcome.DUPLICATE_KEY,
        first.job_id,
        False,
    )
    assert (other.outcome, other.job_id, other.payload_mismatch) == (
        IntakeOutcome.DUPLICATE_KEY,
        first.job_id,
        True,
    )
    assert ReviewJob.objects.count() == 1


def test_order_of_recipients_does_not_change_the_body(post: Callable[..., Any]) -> None:
    post("k1", recipients=("mail:a@example.com", "mail:b@example.com"))
    assert not post("k1", recipients=("mail:b@example.com", "mail:a@example.com")).payload_mismatch


def test_the_same_version_is_a_no_op_even_as_a_rerun(post: Callable[..., Any]) -> None:
    first = post("k1", version=3)
    for rerun in (False, True):
        again = post(f"k2{rerun}", version=3, rerun=rerun)
        assert (again.outcome, again.job_id) == (IntakeOutcome.SAME_VERSION, first.job_id)


@pytest.mark.parametrize(("version", "rerun"), [(2, True), (2, False), (4, False)])
def test_lower_version_or_missing_rerun_is_a_conflict(
    post: Callable[..., Any], version: int, rerun: bool
) -> None:
    post("k1", version=3)
    result = post("k2", version=version, rerun=rerun)
    assert (result.outcome, result.job_id, result.newest_version) == (IntakeOutcome.VERSION_CONFLICT, None, 3)
    assert ReviewJob.objects.count() == 1


def test_an_explicit_higher_version_is_a_new_job(post: Callable[..., Any], work: Callable[[], int]) -> None:
    first = post("k1", version=3)
    work()
    rerun = post("k2", version=4, rerun=True)
    assert rerun.outcome is IntakeOutcome.CREATED
    assert ReviewJob.objects.get(pk=first.job_id).status == JobStatus.SUCCEEDED
    assert ReviewJob.objects.get(pk=rerun.job_id).changelist_id == "12345"


def test_a_newer_version_supersedes_one_still_at_work(
    post: Callable[..., Any], work: Callable[[], int]
) -> None:
    old = post("k1", version=1)
    unsent = factories.DeliveryFactory(job_id=old.job_id, status="pending")
    new = post("k2", version=2, rerun=True)
    job = ReviewJob.objects.get(pk=old.job_id)
    unsent.refresh_from_db()
    assert unsent.status == "superseded"
    assert (job.status, job.status_reason) == (JobStatus.SUPERSEDED, "version 2 was requested")
    assert set(job.stages.values_list("status", flat=True)) == {"cancelled"}
    assert list(OutboxMessage.objects.values_list("aggregate_id", flat=True)) == [
        StageRun.objects.get(job_id=new.job_id, stage="fetch").pk
    ]
    work()
    assert ReviewJob.objects.get(pk=old.job_id).status == JobStatus.SUPERSEDED
    assert ReviewJob.objects.get(pk=new.job_id).status == JobStatus.SUCCEEDED


def test_the_database_itself_refuses_a_second_job_for_a_key_or_version(post: Callable[..., Any]) -> None:
    job = ReviewJob.objects.get(pk=post().job_id)
    for change in ({"changelist_id": "2"}, {"idempotency_key": "k2"}):
        fields = {
            "idempotency_key": job.idempotency_key,
            "changelist_id": job.changelist_id,
            "review_version": job.review_version,
            "deadline_at": job.deadline_at,
            "request_sha256": "",
            **change,
        }
        with pytest.raises(IntegrityError), transaction.atomic():
            ReviewJob.objects.create(**fields)


def _together(count: int, requests: Callable[[int], ReviewRequest]) -> list[Any]:
    """Send requests from threads that start at the same moment, each on its own connection."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def one(number: int) -> None:
        barrier.wait()
        try:
            results[number] = request_review(requests(number))
        except Exception as error:  # noqa: BLE001  asserted on by the caller
            results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.django_db(transaction=True)
def test_fifty_identical_requests_at_once_make_one_job() -> None:
    results = _together(50, lambda number: ReviewRequest("same", "12345"))
    assert Counter(r.outcome for r in results) == {IntakeOutcome.CREATED: 1, IntakeOutcome.DUPLICATE_KEY: 49}
    assert len({r.job_id for r in results}) == 1
    assert (ReviewJob.objects.count(), StageRun.objects.count(), OutboxMessage.objects.count()) == (1, 3, 1)


@pytest.mark.django_db(transaction=True)
def test_racing_reruns_leave_exactly_one_active_version() -> None:
    request_review(ReviewRequest("k1", "12345", 1))
    results = _together(20, lambda n: ReviewRequest(f"r{n}", "12345", n + 2, rerun=True))
    assert {type(r) for r in results} == {review_requests.IntakeResult}
    active = ReviewJob.objects.filter(status=JobStatus.QUEUED)
    assert [job.review_version for job in active] == [21]
    created = sum(r.outcome is IntakeOutcome.CREATED for r in results)
    assert ReviewJob.objects.filter(status=JobStatus.SUPERSEDED).count() == created


@pytest.mark.django_db(transaction=True)
def test_one_key_for_two_changelists_at_once_makes_one_job() -> None:
    results = _together(20, lambda n: ReviewRequest("same", str(1000 + n % 2)))
    assert sum(r.outcome is IntakeOutcome.CREATED for r in results) == 1
    assert ReviewJob.objects.count() == 1


def test_a_rerun_that_loses_its_key_to_another_changelist_ends_nothing(
    post: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = post("k1", "12345", 1)
    insert = review_requests._insert

    def lose(request: ReviewRequest, *, rerun: bool, **more: Any) -> int | None:
        if rerun:  # between the look and the insert, another changelist takes the key
            insert(ReviewRequest("k2", "777"), rerun=False)
        return insert(request, rerun=rerun, **more)

    monkeypatch.setattr(review_requests, "_insert", lose)
    with pytest.raises(AssertionError, match="neither created"):
        post("k2", "12345", 2, rerun=True)
    # The rollback took the other insert of this test with it; what counts is the old version.
    assert ReviewJob.objects.get(pk=old.job_id).status == JobStatus.QUEUED
