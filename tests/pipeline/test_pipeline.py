"""Claim, work, record: budgets, fencing, the end of a job (guarantees G10 to G17, G24)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, InternalError, transaction
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
)
from deadletters import workflow
from deadletters.models import DeadLetter
from notifications.models import Delivery
from reviews import pipeline
from reviews.models import Attempt, ReviewJob, StageRun
from reviews.pipeline import Due, LostLease, async_executor, executor
from reviews.states import JobStatus, Stage
from tests import factories, scripted
from tests.letters import walk, walk_and_replay
from tests.reviewers.build import fake_token

pytestmark = pytest.mark.django_db(transaction=True)  # now() stands still inside one transaction
Post = Callable[..., Any]
Work = Callable[[], int]

DOWN = RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.SOURCE, "503")


def _job(result: Any) -> ReviewJob:
    return ReviewJob.objects.get(pk=result.job_id)


def _due(queue: str = "stages") -> Due:
    (message,) = outbox.claim(queue, 1)
    return Due(message.id, message.aggregate_id, message.lease_token)


def test_a_job_goes_through_its_stages_and_leaves_no_message(post: Post, work: Work) -> None:
    job = _job(post())
    work()
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED
    assert job.finished_at is not None
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm", "notify"]
    assert not OutboxMessage.objects.exists()
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["succeeded"] * 3


def test_stages_on_one_queue_follow_without_the_queue(post: Post, work: Work) -> None:
    post()
    assert work() == 1


def test_a_stage_on_another_queue_is_announced_there(post: Post, work: Work, settings: Any) -> None:
    settings.STAGES = {**scripted.STAGES, "llm": ("tests.scripted.llm", "llm")}
    post()
    work()
    assert [call[0] for call in scripted.CALLS] == ["fetch"]
    assert OutboxMessage.objects.get().queue == "llm"


def test_second_worker_cannot_claim_a_running_stage(post: Post) -> None:
    post()
    due = _due()
    claim = pipeline.claim(due, "one")
    assert claim is not None
    assert pipeline.claim(due, "two") is None
    assert outbox.claim("stages", 10) == []
    assert Attempt.objects.count() == 1
    # A worker that is lost costs half a minute, however long its stage.
    lease = StageRun.objects.get(stage="fetch").lease_expires_at - timezone.now()
    assert timedelta(seconds=20) < lease <= timedelta(seconds=30)


def test_a_duplicate_task_is_refused_and_changes_nothing(post: Post, work: Work) -> None:
    job = _job(post())
    due = _due()
    executor.run_stage(due.outbox_id, due.stage_run_id, due.token)
    executor.run_stage(due.outbox_id, due.stage_run_id, due.token)
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm", "notify"]
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED


@pytest.mark.parametrize("stage", ["fetch", "llm", "notify"])
def test_a_worker_that_lost_its_lease_changes_nothing(
    post: Post, make_due: Callable[[], None], stage: str
) -> None:
    job = _job(post())
    for _ in range(list(scripted.STAGES).index(stage)):
        before = pipeline.claim(_due(), "one")
        assert before is not None
        pipeline.record(before)
    slow = pipeline.claim(_due(), "slow")
    make_due()
    quick = pipeline.claim(_due(), "quick")
    assert slow is not None
    assert quick is not None
    for late in (
        lambda: pipeline.record(slow),
        lambda: pipeline.fail(slow, DOWN, ""),
        lambda: pipeline.fail(slow, PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE), ""),
        lambda: pipeline.wait(slow, DependencyUnavailable("llm:x", 1.0)),
    ):
        with pytest.raises(LostLease):
            late()
    pipeline.give_back(slow)
    pipeline.keep_progress(slow, {"a": "b"})
    assert not pipeline.still_ours(slow)
    assert pipeline.still_ours(quick)
    run = job.stages.get(stage=stage)
    assert (run.status, run.attempts, run.progress, run.lease_token) == ("running", 2, {}, quick.token)
    job.refresh_from_db()
    assert job.status == JobStatus.IN_PROGRESS
    pipeline.record(quick)
    attempts = Attempt.objects.filter(stage_run__stage=stage).order_by("id")
    assert list(attempts.values_list("outcome", "number")) == [("lost", 1), ("succeeded", 2)]


def test_a_retryable_failure_waits_and_the_next_attempt_succeeds(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    job = _job(post())
    scripted.SCRIPT["fetch"].append(
        RetryableFailure(ErrorClass.RATE_LIMITED, Component.SOURCE, retry_after_seconds=40)
    )
    work()
    job.refresh_from_db()
    run = job.stages.get(stage="fetch")
    assert (job.status, run.status, run.attempts) == (JobStatus.RETRYABLE_FAILED, "retry_wait", 1)
    assert (
        timezone.now() + timedelta(seconds=35) < run.next_attempt_at < timezone.now() + timedelta(seconds=45)
    )
    assert OutboxMessage.objects.get().retry_count == 1
    make_due()
    work()
    job.refresh_from_db()
    assert (job.status, job.status_reason) == (JobStatus.SUCCEEDED, "")


def test_five_attempts_then_a_dead_letter_with_the_whole_payload(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    job = _job(post())
    scripted.SCRIPT["llm"].extend([DOWN] * 5)
    for _ in range(6):
        work()
        make_due()
    job.refresh_from_db()
    letter = DeadLetter.objects.get()
    assert (job.status, job.status_reason) == (JobStatus.DEAD_LETTERED, "UPSTREAM_UNAVAILABLE")
    assert [call[0] for call in scripted.CALLS] == ["fetch"] + ["llm"] * 5
    assert (letter.stage, letter.error_class, letter.attempts) == ("llm", "UPSTREAM_UNAVAILABLE", 5)
    attempts = Attempt.objects.filter(stage_run__stage="llm").order_by("id")
    ends = list(attempts.values_list("finished_at", flat=True))
    assert (letter.first_failure_at, letter.last_failure_at) == (ends[0], ends[-1])
    assert letter.last_stack
    assert letter.sanitized_context["max_attempts"] == 5
    assert letter.payload_reference
    assert not OutboxMessage.objects.exists()


def test_a_failure_that_quotes_a_secret_is_stored_without_it(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    secret = fake_token()
    facts = {"answer": f"token {secret}", "password": "correct horse"}
    quoting = [
        kind(ErrorClass.UPSTREAM_UNAVAILABLE, Component.REVIEWER, f"it said {secret}", context=facts)
        for kind in (RetryableFailure, PermanentFailure)
    ]
    _job(post())
    scripted.SCRIPT["llm"].extend(quoting)
    work()
    make_due()
    work()
    letter = DeadLetter.objects.get()
    attempts = Attempt.objects.filter(stage_run__stage="llm")
    assert letter.detail.startswith("it said <REDACTED:")
    assert [attempt.detail for attempt in attempts] == [letter.detail] * 2
    stored = [letter.sanitized_context, *attempts.values_list("context", flat=True), letter.last_stack]
    assert len(stored) == 4
    for text in map(str, stored):
        assert secret not in text
        assert "correct horse" not in text


def test_a_failing_stage_uses_no_attempt_of_another(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    job = _job(post())
    scripted.SCRIPT["fetch"].extend([DOWN] * 4)
    scripted.SCRIPT["notify"].extend([DOWN] * 4)
    for _ in range(10):
        work()
        make_due()
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED
    assert dict(job.stages.values_list("stage", "attempts")) == {"fetch": 5, "llm": 1, "notify": 5}


def test_reclassification_as_permanent_stops_retries_at_once(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    job = _job(post())
    scripted.SCRIPT["fetch"].extend(
        [DOWN, PermanentFailure(ErrorClass.AUTH_DENIED, Component.SOURCE, "expired")]
    )
    work()
    make_due()
    work()
    job.refresh_from_db()
    assert (job.status, job.status_reason) == (JobStatus.DEAD_LETTERED, "AUTH_DENIED")
    assert job.stages.get(stage="fetch").attempts == 2


def test_a_stage_that_kills_its_worker_uses_its_budget_and_ends_as_worker_lost(
    post: Post, work: Work, make_due: Callable[[], None]
) -> None:
    job = _job(post())
    for number in range(1, 6):
        claim = pipeline.claim(_due(), "doomed")
        assert claim is not None
        assert claim.attempt == number
        make_due()
    assert work() == 1
    job.refresh_from_db()
    letter = DeadLetter.objects.get()
    assert (job.status, letter.error_class, letter.attempts) == (JobStatus.DEAD_LETTERED, "WORKER_LOST", 5)
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"lost"}
    assert not OutboxMessage.objects.exists()


def test_two_losses_of_a_shared_worker_cost_no_attempt_and_later_ones_do(
    post: Post, make_due: Callable[[], None]
) -> None:
    post()
    found = []
    for _ in range(5):
        claim = pipeline.claim(_due(), "shared", shared=True)
        assert claim is not None
        found.append(claim.attempt)
        make_due()
    assert found == [1, 1, 1, 2, 3]
    outcomes = Attempt.objects.order_by("pk").values_list("outcome", flat=True)
    assert list(outcomes) == ["given_back", "given_back", "lost", "lost", "started"]


def test_only_a_lost_worker_is_given_back_and_makes_suspect(post: Post, make_due: Callable[[], None]) -> None:
    """Attempts that lost their redacting process, and those before a restart, do not count."""
    post()
    run = StageRun.objects.get(stage="fetch")
    for _ in range(2):
        Attempt.objects.create(stage_run=run, number=1, outcome="lost", error_class="WORKER_LOST")
    first = pipeline.claim(_due(), "shared", shared=True)
    for _ in range(2):
        Attempt.objects.create(stage_run=run, number=1, outcome="failed", error_class="WORKER_LOST")
    assert async_executor._lost_their_worker([run.pk]) == set()
    make_due()
    second = pipeline.claim(_due(), "shared", shared=True)
    assert first is not None
    assert second is not None
    assert (first.attempt, second.attempt) == (1, 1)
    assert async_executor._lost_their_worker([run.pk]) == {run.pk}


def test_the_last_attempt_is_not_used_up_by_another_stage_in_the_same_worker(
    post: Post, make_due: Callable[[], None]
) -> None:
    post()
    StageRun.objects.filter(stage="fetch").update(attempts=4)
    for _ in range(3):
        claim = pipeline.claim(_due(), "shared", shared=True)
        assert claim is not None
        assert claim.attempt == 5
        make_due()
    assert pipeline.claim(_due(), "shared", shared=True) is None


def test_an_attempt_given_back_does_not_count(post: Post, work: Work) -> None:
    job = _job(post())
    claim = pipeline.claim(_due(), "stopping")
    assert claim is not None
    pipeline.give_back(claim)
    assert job.stages.get(stage="fetch").attempts == 0
    work()
    job.refresh_from_db()
    assert job.status == JobStatus.SUCCEEDED
    assert job.stages.get(stage="fetch").attempts == 1


def test_success_needs_every_delivery_marked(post: Post, work: Work) -> None:
    job = _job(post())
    Delivery.objects.create(
        job=job,
        changelist_id=job.changelist_id,
        recipient="mail:ann@example.com",
        review_version=1,
        token="00000000-0000-0000-0000-000000000001",
        provider="maildir",
    )
    work()
    job.refresh_from_db()
    # It is repeated: a standby that was promoted may have forgotten what the stage did.
    assert (job.status, job.status_reason) == (JobStatus.RETRYABLE_FAILED, "DATABASE_UNAVAILABLE")


def test_a_result_is_stored_with_its_commit_or_not_at_all(post: Post, work: Work) -> None:
    job = _job(post())

    def broken() -> None:
        ReviewJob.objects.filter(pk=job.pk).update(title="half")
        raise RuntimeError("disk full")

    scripted.SCRIPT["fetch"].append(lambda claim: broken)
    work()
    job.refresh_from_db()
    assert job.title == ""
    # A result that cannot be stored is a failure of its own, not a lost worker.
    assert (job.status, job.status_reason) == (JobStatus.DEAD_LETTERED, "INTERNAL_BUG")
    assert "disk full" in DeadLetter.objects.get().last_stack


def test_cancel_ends_the_job_and_keeps_what_is_finished(post: Post, work: Work) -> None:
    job = _job(post())
    unsent = factories.DeliveryFactory(job=job, status="pending")
    scripted.SCRIPT["llm"].append(DOWN)
    work()
    assert pipeline.cancel(job.pk, "ann", "not needed")
    job.refresh_from_db()
    unsent.refresh_from_db()
    assert unsent.status == "cancelled"
    assert job.status == JobStatus.CANCELLED
    assert dict(job.stages.values_list("stage", "status")) == {
        "fetch": "succeeded",
        "llm": "cancelled",
        "notify": "cancelled",
    }
    assert not pipeline.cancel(job.pk, "ann", "again")
    assert not OutboxMessage.objects.exists()


def test_a_running_stage_of_a_cancelled_job_records_nothing(post: Post) -> None:
    job = _job(post())
    claim = pipeline.claim(_due(), "busy")
    assert claim is not None
    assert pipeline.cancel(job.pk, "ann", "stop")
    with pytest.raises(LostLease):
        pipeline.record(claim)
    job.refresh_from_db()
    assert job.status == JobStatus.CANCELLED


def test_the_sweep_finds_everything_from_the_rows_alone(post: Post, work: Work) -> None:
    jobs = [_job(post(f"k{n}", str(100 + n))) for n in range(3)]
    later = RetryableFailure(ErrorClass.RATE_LIMITED, Component.SOURCE, retry_after_seconds=60)
    scripted.SCRIPT["fetch"].extend([None, later])
    work()
    OutboxMessage.objects.all().delete()
    post("k9", "999")
    OutboxMessage.objects.all().delete()
    assert pipeline.sweep() == 2
    assert pipeline.sweep() == 0
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    work()
    assert set(ReviewJob.objects.values_list("status", flat=True)) == {JobStatus.SUCCEEDED}
    assert len(jobs) == 3


def test_the_sweep_moves_waiting_work_to_the_queue_that_serves_its_stage_now(
    post: Post, settings: Any
) -> None:
    """After an upgrade that gave a stage a queue of its own nothing is left to the old queue."""
    post()
    post("k2", "200")
    leased = outbox.claim("stages", 1)[0]
    settings.STAGES = {**scripted.STAGES, "fetch": ("tests.scripted.fetch", "elsewhere")}
    assert pipeline.sweep() == 0  # nothing was lost
    queues = dict(OutboxMessage.objects.values_list("id", "queue"))
    assert sorted(queues.values()) == ["elsewhere", "stages"]
    assert queues[leased.id] == "stages"  # its worker has it


def test_the_sweep_respects_waits_and_leases(post: Post, work: Work) -> None:
    post()
    scripted.SCRIPT["fetch"].append(
        RetryableFailure(ErrorClass.RATE_LIMITED, Component.SOURCE, retry_after_seconds=60)
    )
    work()
    OutboxMessage.objects.all().delete()
    pipeline.sweep()
    assert work() == 0


def test_database_refuses_unlisted_transitions(post: Post) -> None:
    job = _job(post())
    for update in (
        lambda: ReviewJob.objects.filter(pk=job.pk).update(status="succeeded", finished_at=timezone.now()),
        lambda: ReviewJob.objects.filter(pk=job.pk).update(status="dead_lettered"),  # without finished_at
        lambda: StageRun.objects.filter(job=job, stage="fetch").update(status="succeeded"),
        lambda: StageRun.objects.filter(job=job, stage="fetch").update(attempts=6),
        lambda: StageRun.objects.filter(job=job, stage="fetch").update(status="running"),  # without a lease
    ):
        with pytest.raises((IntegrityError, InternalError, DatabaseError)), transaction.atomic():
            update()


# -- replay -----------------------------------------------------------------------------------


def _dead(post: Post, work: Work, stage: str = "llm", failure: Exception | None = None) -> DeadLetter:
    scripted.SCRIPT[stage].append(
        failure or PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, "key expired")
    )
    post()
    work()
    letter = DeadLetter.objects.get()
    factories.stored_change(letter.job)
    return letter


def test_replay_starts_at_the_failed_stage_with_a_fresh_budget(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    scripted.CALLS.clear()
    result = walk_and_replay(letter.pk, reason="key rotated, INC-7")
    assert (result.ok, result.message) == (True, "replayed from stage llm")
    stages = letter.job.stages.order_by("id").values_list("status", "attempts")
    assert list(stages) == [("succeeded", 1), ("pending", 0), ("pending", 0)]
    work()
    letter.refresh_from_db()
    assert [call[0] for call in scripted.CALLS] == ["llm", "notify"]
    assert letter.job.status == JobStatus.SUCCEEDED
    assert (letter.status, letter.closed_at) == ("verifying", None)
    actions = [event.action for event in letter.events.all()]
    assert actions == ["created", "triaged", "remediated", "validated", "replayed", "succeeded"]
    assert letter.events.get(action="replayed").actor == "ann"


def test_a_replayed_stage_took_the_time_of_its_last_run(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    prepared.rows("UPDATE stage_runs SET started_at = now() - interval '3 days'")
    began = prepared.value("SELECT now()")
    assert walk_and_replay(letter.pk).ok
    assert StageRun.objects.get(stage="llm").started_at is None
    work()
    for run in StageRun.objects.filter(stage__in=("llm", "notify")):
        assert run.started_at is not None
        assert began <= run.started_at <= run.finished_at


def test_restart_runs_every_stage_again(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    scripted.CALLS.clear()
    assert walk_and_replay(letter.pk, restart=True).ok
    work()
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm", "notify"]


@pytest.mark.long
def test_the_same_failure_after_a_replay_is_escalated(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    scripted.SCRIPT["llm"].append(PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, "still"))
    walk_and_replay(letter.pk)
    work()
    letter.refresh_from_db()
    assert (letter.status, letter.failed_replay_count, letter.is_escalated) == ("new", 1, True)
    assert letter.job.status == JobStatus.DEAD_LETTERED


def test_another_failure_after_a_replay_is_not_escalated(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    scripted.SCRIPT["llm"].append(PermanentFailure(ErrorClass.NOT_FOUND, Component.REVIEWER, "no such model"))
    walk_and_replay(letter.pk)
    work()
    letter.refresh_from_db()
    assert (letter.status, letter.error_class, letter.is_escalated) == ("new", "NOT_FOUND", False)


def test_failure_at_a_later_stage_makes_another_dead_letter(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    scripted.SCRIPT["notify"].append(
        PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "gone")
    )
    walk_and_replay(letter.pk)
    work()
    letter.refresh_from_db()
    assert letter.status == "verifying"
    assert DeadLetter.objects.exclude(pk=letter.pk).get().stage == "notify"


@pytest.mark.parametrize("end", ["cancel", "supersede"])
def test_a_replay_whose_job_is_ended_leaves_no_open_letter(post: Post, work: Work, end: str) -> None:
    letter = _dead(post, work)
    assert walk_and_replay(letter.pk).ok
    if end == "cancel":
        assert pipeline.cancel(letter.job_id, "bob", "not needed")
    else:
        post("k2", version=2, rerun=True)
    letter.refresh_from_db()
    assert (letter.status, letter.closed_at is not None) == ("discarded", True)


def test_second_replay_is_refused_and_names_the_first_actor(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    walk_and_replay(letter.pk)
    refused = workflow.replay(letter.pk, actor="bob", reason="me too")
    assert not refused.ok
    assert "it is already replaying (replayed from the failed stage by ann at" in refused.message
    assert letter.events.filter(action="refused", actor="bob").exists()


def test_an_older_version_is_not_replayed_over_a_newer_one(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    walk(letter.pk)
    post("k2", version=2, rerun=True)
    refused = workflow.replay(letter.pk, actor="ann", reason="try")
    assert (refused.ok, refused.message) == (False, "newer version exists: 2")
    letter.refresh_from_db()
    assert letter.status == "validated"
    work()
    assert ReviewJob.objects.get(review_version=2).status == JobStatus.SUCCEEDED
    with transaction.atomic():  # as where the newer version came between the checks and the replay
        assert not pipeline.replay(letter.job_id, Stage.LLM)


def test_a_replay_needs_a_reason(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    with pytest.raises(ValueError, match="A reason is required"):
        workflow.replay(letter.pk, actor="ann", reason="  ")


def test_a_discarded_letter_stays_readable_and_closed(post: Post, work: Work) -> None:
    letter = _dead(post, work)
    assert workflow.discard(letter.pk, actor="ann", reason="obsolete").ok
    assert not workflow.replay(letter.pk, actor="ann", reason="changed my mind").ok
    letter.refresh_from_db()
    assert letter.status == "discarded"
