"""Jobs ended from outside: deadline, cancel, supersede; results that arrive afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from deadletters.models import DeadLetter
from notifications.delivery import snapshot
from notifications.models import Delivery
from notifications.rendering import Ending
from reviews import pipeline
from reviews.models import Attempt, FindingRow, JobEvent, ReviewJob, Scan, StageRun
from reviews.pipeline import Due, LostLease, StageClaim, executor
from reviews.states import FindingStatus, JobStatus, StageStatus
from tests import factories, scripted
from tests.beside import Beside
from tests.letters import walk_and_replay

pytestmark = pytest.mark.django_db(transaction=True)
Post = Callable[..., Any]
Work = Callable[[], int]


def _overdue(job_id: int) -> None:
    ReviewJob.objects.filter(pk=job_id).update(deadline_at="2001-01-01T00:00:00Z")


def _due(queue: str = "stages") -> Due:
    (message,) = outbox.claim(queue, 1)
    return Due(message.id, message.aggregate_id, message.lease_token)


def _finding(claim: StageClaim) -> Callable[[], None]:
    def write() -> None:
        FindingRow.objects.create(
            job_id=claim.job_id, file="//a/b.py", severity="high", category="bug", title="t", message="m"
        )

    return write


def _late(job_id: int) -> Callable[[StageClaim], Callable[[], None]]:
    """A review during which the deadline passes and the maintenance notices."""

    def step(claim: StageClaim) -> Callable[[], None]:
        _overdue(job_id)
        assert pipeline.expire_overdue() == 1
        return _finding(claim)

    return step


def test_a_job_past_its_deadline_is_timed_out_with_its_reason(post: Post) -> None:
    job_id = post().job_id
    _overdue(job_id)

    assert pipeline.expire_overdue() == 1

    job = ReviewJob.objects.get(pk=job_id)
    assert job.status == JobStatus.TIMED_OUT
    assert job.status_reason.startswith("DEADLINE_EXCEEDED")
    assert job.finished_at is not None
    assert not job.is_late
    assert not OutboxMessage.objects.exists()
    assert [event.kind for event in job.events.all()] == [JobEvent.Kind.TIMED_OUT]
    assert pipeline.expire_overdue() == 0


def test_what_was_not_sent_by_the_deadline_is_cancelled_in_the_same_step(post: Post) -> None:
    job_id = post().job_id
    row = factories.DeliveryFactory(job_id=job_id, status="pending")
    _overdue(job_id)
    pipeline.expire_overdue()
    row.refresh_from_db()
    assert row.status == "cancelled"


def test_a_job_before_its_deadline_is_left_alone(post: Post, work: Work) -> None:
    post()
    assert pipeline.expire_overdue() == 0
    work()
    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED


def test_a_stage_does_not_begin_after_the_deadline(post: Post, work: Work) -> None:
    job_id = post().job_id
    _overdue(job_id)

    work()

    assert scripted.CALLS == []
    assert ReviewJob.objects.get().status == JobStatus.TIMED_OUT
    assert not OutboxMessage.objects.exists()


def test_finished_stages_stay_readable_when_the_deadline_passes_between_two(post: Post, work: Work) -> None:
    job_id = post().job_id
    scripted.SCRIPT["llm"].append(lambda claim: _then(_finding(claim), lambda: _overdue(job_id)))

    work()

    job = ReviewJob.objects.get()
    assert job.status == JobStatus.TIMED_OUT
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm"]
    assert FindingRow.objects.count() == 1


def _then(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both


def test_a_late_result_is_stored_and_changes_no_state(post: Post, work: Work) -> None:
    job_id = post().job_id
    scripted.SCRIPT["llm"].append(_late(job_id))

    work()

    job = ReviewJob.objects.get()
    assert job.status == JobStatus.TIMED_OUT
    assert job.is_late
    assert FindingRow.objects.count() == 1
    assert StageRun.objects.get(stage="llm").status == StageStatus.CANCELLED
    assert StageRun.objects.get(stage="notify").status == StageStatus.CANCELLED
    assert [event.kind for event in job.events.all()] == ["timed_out", "late_stored"]
    assert Attempt.objects.get(stage_run__stage="llm").error_class == "DEADLINE_EXCEEDED"
    assert not OutboxMessage.objects.exists()


def _ends_a_finding(job_id: int, end: Callable[[], object]) -> Callable[[StageClaim], Callable[[], None]]:
    """A review without the earlier version's finding, during which its job ends."""

    def step(claim: StageClaim) -> Callable[[], None]:
        end()
        earlier = FindingRow.objects.exclude(job=job_id)
        return lambda: earlier.update(ending=Ending.FIXED, ended_in=claim.job_id) and None

    return step


def test_a_late_result_ends_findings_of_earlier_versions_when_it_is_accepted(post: Post, work: Work) -> None:
    earlier = factories.FindingRowFactory(job_id=post().job_id, is_new=True)
    work()
    job_id = post(key="k2", version=2, rerun=True).job_id

    def overdue() -> None:
        _overdue(job_id)
        assert pipeline.expire_overdue() == 1

    scripted.SCRIPT["llm"].append(_ends_a_finding(job_id, overdue))
    work()
    earlier.refresh_from_db()
    assert ReviewJob.objects.get(pk=job_id).is_late
    assert (earlier.ending, earlier.ended_in_id, earlier.status) == ("", None, FindingStatus.NEW)

    assert pipeline.accept_late(job_id, "olga", "still useful") == ""
    earlier.refresh_from_db()
    assert (earlier.ending, earlier.ended_in_id, earlier.status) == ("fixed", job_id, FindingStatus.FIXED)


def test_a_review_in_time_keeps_its_say_when_its_deadline_passes_while_it_notifies(
    post: Post, work: Work
) -> None:
    earlier = factories.FindingRowFactory(job_id=post().job_id, is_new=True)
    work()
    job_id = post(key="k2", version=2, rerun=True).job_id
    scripted.SCRIPT["llm"].append(_ends_a_finding(job_id, lambda: None))
    scripted.SCRIPT["notify"].append(_late(job_id))
    work()
    assert ReviewJob.objects.get(pk=job_id).status == JobStatus.TIMED_OUT
    earlier.refresh_from_db()
    assert (earlier.ending, earlier.ended_in_id) == ("fixed", job_id)


def test_the_result_of_a_superseded_review_ends_no_finding_of_another(post: Post, work: Work) -> None:
    earlier = factories.FindingRowFactory(job_id=post().job_id, is_new=True)
    work()
    job_id = post(key="k2", version=2, rerun=True).job_id
    scripted.SCRIPT["llm"].append(_ends_a_finding(job_id, lambda: post(key="k3", version=3, rerun=True)))
    work()
    assert ReviewJob.objects.get(pk=job_id).status == JobStatus.SUPERSEDED
    earlier.refresh_from_db()
    assert (earlier.ending, earlier.ended_in_id) == ("", None)


def test_a_late_result_is_stored_once(post: Post) -> None:
    job_id = post().job_id
    claim = pipeline.claim(_due(), "one")
    assert claim is not None
    _overdue(job_id)
    pipeline.expire_overdue()

    assert pipeline.record_after_end(claim, _finding(claim))
    assert not pipeline.record_after_end(claim, _finding(claim))
    assert FindingRow.objects.count() == 1


def test_a_worker_that_lost_its_lease_before_the_end_stores_nothing(
    post: Post, make_due: Callable[[], None]
) -> None:
    job_id = post().job_id
    zombie = pipeline.claim(_due(), "one")
    assert zombie is not None
    make_due()
    assert pipeline.claim(_due(), "two") is not None
    _overdue(job_id)
    pipeline.expire_overdue()

    assert not pipeline.record_after_end(zombie, _finding(zombie))
    assert not FindingRow.objects.exists()


def test_late_result_is_not_stored_for_an_active_job(post: Post) -> None:
    post()
    claim = pipeline.claim(_due(), "one")
    assert claim is not None
    assert not pipeline.record_after_end(claim, _finding(claim))


def test_an_accepted_late_result_is_delivered_once_and_only_then(post: Post, work: Work) -> None:
    job_id = post(recipients=("mail:ann@example.com",)).job_id
    scripted.SCRIPT["llm"].append(_late(job_id))
    work()
    assert "notify" not in [call[0] for call in scripted.CALLS]

    assert pipeline.accept_late(job_id, "olga", "still useful") == ""
    work()

    job = ReviewJob.objects.get()
    assert job.status == JobStatus.SUCCEEDED
    assert job.is_late
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm", "notify"]
    accepted = job.events.get(kind=JobEvent.Kind.LATE_ACCEPTED)
    assert (accepted.actor, accepted.reason) == ("olga", "still useful")
    assert pipeline.accept_late(job_id, "olga", "again") == "only a review that timed out has a late result"


def test_deliveries_given_up_at_the_deadline_come_back_with_the_acceptance(post: Post, work: Work) -> None:
    job_id = post().job_id
    scripted.SCRIPT["llm"].append(_late(job_id))
    work()
    row = Delivery.objects.create(
        job_id=job_id, changelist_id="12345", recipient="mail:a@b.c", review_version=1,
        token=snapshot.token_for("12345", "mail:a@b.c", 1), status="pending",
    )  # fmt: skip
    pipeline.expire_overdue()
    row.refresh_from_db()
    assert row.status == "cancelled"

    pipeline.accept_late(job_id, "olga", "still useful")

    row.refresh_from_db()
    assert row.status == "pending"


def test_a_timed_out_job_without_a_result_cannot_be_accepted(post: Post) -> None:
    job_id = post().job_id
    _overdue(job_id)
    pipeline.expire_overdue()
    assert "request a rerun" in pipeline.accept_late(job_id, "olga", "please")
    assert ReviewJob.objects.get().status == JobStatus.TIMED_OUT


def test_a_late_scan_is_not_accepted_over_a_newer_one_of_its_path() -> None:
    path = factories.ScanTargetFactory()
    older, newer = (
        factories.ReviewJobFactory(changelist_id=name, status="timed_out", is_late=True, kind="scan")
        for name in ("1", "2")
    )
    for job in (older, newer):
        Scan.objects.create(job=job, target=path)
    assert pipeline.accept_late(older.pk, "olga", "please") == "a newer scan of its path exists"
    assert pipeline.why_not_acceptable(newer.pk) == ""
    path.delete()
    assert pipeline.why_not_acceptable(newer.pk) == "its path is no longer scanned"


def test_a_late_result_is_not_accepted_over_a_newer_version(post: Post, work: Work) -> None:
    job_id = post().job_id
    scripted.SCRIPT["llm"].append(_late(job_id))
    work()
    post(key="k2", version=2, rerun=True)
    assert pipeline.accept_late(job_id, "olga", "please") == "a newer version of the changelist exists"


def test_accepting_a_late_result_needs_a_reason(post: Post) -> None:
    with pytest.raises(ValueError, match="A reason is required"):
        pipeline.accept_late(post().job_id, "olga", "  ")


def test_an_attempt_that_begins_while_its_job_is_cancelled_is_given_back(post: Post) -> None:
    job_id = post().job_id
    with transaction.atomic():
        assert pipeline.claim(_due(), "worker") is not None
        cancelling = Beside(lambda: pipeline.cancel(job_id, "kim", "not needed"))
        assert cancelling.is_blocked()
    cancelling.join()

    assert cancelling.result is True
    assert Attempt.objects.get().outcome == "given_back"
    assert StageRun.objects.get(stage="fetch").attempts == 0


def test_a_cancelled_attempt_uses_no_budget_and_its_work_is_kept(post: Post) -> None:
    job_id = post().job_id
    claim = pipeline.claim(_due(), "one")
    assert claim is not None

    pipeline.cancel(job_id, "olga", "not needed")
    with pytest.raises(LostLease):
        executor.record(claim, _finding(claim))

    assert StageRun.objects.get(stage="fetch").attempts == 0
    assert Attempt.objects.get().outcome == "given_back"
    assert FindingRow.objects.count() == 1
    assert ReviewJob.objects.get().status == JobStatus.CANCELLED
    assert not ReviewJob.objects.get().is_late


def test_work_stops_at_the_next_check_after_the_deadline(post: Post) -> None:
    job_id = post().job_id
    claim = pipeline.claim(_due(), "one")
    assert claim is not None
    assert pipeline.still_ours(claim)
    _overdue(job_id)
    assert not pipeline.still_ours(claim)
    assert ReviewJob.objects.get().status == JobStatus.TIMED_OUT


def test_a_replay_gets_a_deadline_of_its_own(post: Post, work: Work) -> None:
    job_id = post().job_id
    scripted.SCRIPT["fetch"].append(RuntimeError("a defect"))
    work()
    _overdue(job_id)
    assert walk_and_replay(DeadLetter.objects.get(job_id=job_id).pk).ok
    work()
    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED


def test_job_events_are_append_only(post: Post) -> None:
    pipeline.cancel(post().job_id, "olga", "not needed")
    for statement in ("UPDATE job_events SET actor = 'x'", "DELETE FROM job_events", "TRUNCATE job_events"):
        with pytest.raises(DatabaseError):
            prepared.rows(statement)
