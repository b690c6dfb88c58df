"""Replay batches: frozen, tried dry, approved by a second person, paced, stopped, exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.resilience.circuit_breaker import create
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from criticizer.resilience.health_checks import CHECKS
from deadletters import batches, workflow
from deadletters.batches import collect
from deadletters.batches import worker as batch_runs
from deadletters.models import DeadLetter, OperatorAlert, ReplayBatch, ReplayItem
from deadletters.states import BatchStatus, ItemStatus, LetterStatus
from deadletters.types import Check, CheckKind
from reviews.models import ReviewJob
from reviews.replay.adapter import JobRecovery
from reviews.states import JobStatus
from tests import factories, scripted
from tests.deadletters.conftest import Fail, Look, Work, denied
from tests.deadletters.test_workflow import silent

pytestmark = pytest.mark.django_db


def _drafted(letters: list[DeadLetter], **given: Any) -> ReplayBatch:
    return batches.draft(
        filter={"q": "error:AUTH_DENIED"},
        ids=[letter.pk for letter in letters],
        actor="ann",
        reason="OPS-1: key rotated",
        **{"evidence_note": "OPS-1: key rotated", "canary_size": 0, "rate_per_minute": 6000, **given},
    )


def _run(batch: ReplayBatch, look: Look, work: Work, looks: int = 30) -> ReplayBatch:
    for _ in range(looks):
        look(batch.pk)
        work()
        batch.refresh_from_db()
        if batch.status != BatchStatus.RUNNING:
            break
    return batch


def _outcomes(batch: ReplayBatch) -> list[str]:
    return [item.status for item in batch.items.order_by("id")]


def test_batch_takes_new_letters_through_every_step(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(3)]
    batch = _drafted(letters)
    assert batches.dry_run(batch.pk)["verdicts"] == {"eligible": 3}
    assert {letter.status for letter in DeadLetter.objects.all()} == {"new"}  # nothing was replayed
    assert batches.submit(batch.pk, actor="ann").message == "started"
    scripted.CALLS.clear()
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert _outcomes(batch) == ["succeeded"] * 3
    assert [call[0] for call in scripted.CALLS].count("llm") == 3
    for letter in DeadLetter.objects.all():
        assert (letter.status, letter.verified_at is not None) == ("verifying", True)
        actions = [event.action for event in letter.events.all()]
        assert actions == [
            "created", "triaged", "remediated", "validated", "queued", "replayed", "succeeded", "verified"
        ]  # fmt: skip
    assert workflow.resolve_many([letter.pk for letter in letters], actor="ann", resolution="OPS-1").done == 3
    rows = list(batches.csv_rows(batch.pk))
    assert rows[0][:5] == ["letter", "job", "lane", "canary", "outcome"]
    assert [row[4] for row in rows[1:]] == ["succeeded"] * 3


def test_dry_run_verdict_of_each_letter(fail: Fail, settings: Any) -> None:
    eligible, newer, closed, expired = (fail(str(number)) for number in range(4))
    factories.ReviewJobFactory(changelist_id="1", review_version=2, status=JobStatus.SUCCEEDED)
    workflow.discard(closed.pk, actor="ann", reason="OPS-1")
    expired.job.artifacts.all().delete()
    batch = _drafted([eligible, newer, closed, expired])
    batches.dry_run(batch.pk)
    assert {item.letter_id: item.verdict for item in batch.items.all()} == {
        eligible.pk: "eligible",
        newer.pk: "newer_version",
        closed.pk: "closed",
        expired.pk: "artifact_expired",
    }
    settings.LLM_PROVIDER = "openai"
    create("llm:openai")
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now()")
    assert batches.dry_run(batch.pk)["verdicts"]["circuit_open"] == 1


def test_selection_is_frozen_and_newer_letters_are_counted(fail: Fail) -> None:
    batch = _drafted([fail("1")])
    ReplayBatch.objects.update(requested_at="2020-01-01T00:00:00Z")
    fail("2")
    seen = batches.progress(batch.pk)
    assert (seen.left, seen.done, seen.newer) == (1, 0, 1)


def test_submit_requires_evidence(fail: Fail) -> None:
    batch = _drafted([fail()], evidence_note="")
    assert not batches.submit(batch.pk, actor="ann").ok
    assert batches.configure(batch.pk, actor="ann", evidence_link="https://ops.example.com/1").ok
    assert batches.submit(batch.pk, actor="ann").ok
    assert not batches.configure(batch.pk, actor="ann", rate_per_minute=1).ok  # drafts only


@pytest.mark.parametrize("given", [{"is_restart": True}, {"override_reason": "known"}, {}])
def test_large_or_dangerous_batch_requires_approval(fail: Fail, settings: Any, given: dict[str, Any]) -> None:
    settings.REPLAY_APPROVAL_ABOVE = 100 if given else 1
    batch = _drafted([fail("1"), fail("2")], **given)
    assert batches.submit(batch.pk, actor="ann").message == "submitted: another person must approve it"
    assert batch_runs.look(batch.pk) > 0
    assert not ReplayItem.objects.exclude(status=ItemStatus.PENDING).exists()
    assert not batches.approve(batch.pk, actor="ann").ok
    assert batches.approve(batch.pk, actor="bob").ok
    batch.refresh_from_db()
    assert (batch.status, batch.approved_by) == ("running", "bob")


def test_failing_canary_stops_the_batch(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(5)]
    batch = _drafted(letters, canary_size=2)
    batches.submit(batch.pk, actor="ann")
    scripted.CALLS.clear()
    scripted.SCRIPT["llm"].extend([denied(), None])
    _run(batch, look, work)
    assert (batch.status, len(scripted.CALLS)) == ("stopped", 3)  # llm, llm and notify of two letters
    assert "failed again" in batch.status_reason
    assert sorted(_outcomes(batch)) == ["failed", "pending", "pending", "pending", "succeeded"]
    assert OperatorAlert.objects.filter(kind="batch_stopped").count() == 1
    assert not DeadLetter.objects.filter(status=LetterStatus.REPLAY_PENDING).exists()
    assert batches.resume(batch.pk, actor="ann", reason="mended now").ok
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert sorted(_outcomes(batch)) == ["failed", *["succeeded"] * 4]


@pytest.mark.long
def test_canary_failing_during_pause_stops_the_batch(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(5)]
    batch = _drafted(letters, canary_size=2)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    batches.pause(batch.pk, actor="bob", reason="lunch")
    scripted.SCRIPT["llm"].extend([denied(), denied()])
    work()
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, "failed again" in batch.status_reason) == ("stopped", True)
    assert OperatorAlert.objects.filter(kind="batch_stopped").count() == 1
    look(batch.pk)
    assert sorted(_outcomes(batch)) == ["failed", "failed", "pending", "pending", "pending"]
    # Who resumes it has read why it stopped: others go first, and these show that it works.
    assert batches.resume(batch.pk, actor="bob", reason="mended now").ok
    look(batch.pk)
    assert sorted(_outcomes(batch)) == ["failed", "failed", "pending", "replaying", "replaying"]
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert sorted(_outcomes(batch)) == ["failed", "failed", "succeeded", "succeeded", "succeeded"]


@pytest.mark.long
def test_repeated_failure_during_pause_stops_the_batch(fail: Fail, look: Look, work: Work) -> None:
    batch = _drafted([fail(str(number)) for number in range(3)], max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    batches.pause(batch.pk, actor="bob", reason="lunch")
    scripted.SCRIPT["llm"].append(denied())
    work()
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, _outcomes(batch)) == ("stopped", ["failed", "pending", "pending"])
    assert "the same failure came back" in batch.status_reason
    assert not DeadLetter.objects.filter(status=LetterStatus.REPLAY_PENDING).exists()


@pytest.mark.parametrize("end", [KeyboardInterrupt, pytest.param(batch_runs._Lost, marks=pytest.mark.long)])
def test_failure_and_stop_are_one_commit(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    monkeypatch.setattr(collect, "SETTLED_AT_ONCE", 1)
    batch = _drafted([fail(str(number)) for number in range(5)], canary_size=2)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    scripted.SCRIPT["llm"].extend([denied(), None])
    work()
    renewed: list[int] = []

    def ends_behind_the_first_commit() -> None:
        renewed.append(1)
        if len(renewed) == 2:
            raise end

    with pytest.raises(end):
        batch_runs.look(batch.pk, ends_behind_the_first_commit)
    batch.refresh_from_db()
    assert batch.status == "stopped"
    look(batch.pk)
    assert _outcomes(batch) == ["failed", "succeeded", "pending", "pending", "pending"]


@pytest.mark.long
def test_late_look_does_not_stop_a_resumed_batch(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = _drafted([fail(str(number)) for number in range(4)], canary_size=1)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    scripted.SCRIPT["llm"].append(denied())
    work()
    whole = collect._outcome

    def overtaken(item: ReplayItem, end: Any) -> Any:
        monkeypatch.setattr(collect, "_outcome", whole)
        look(batch.pk)  # another worker's, which stops the batch
        assert batches.resume(batch.pk, actor="bob", reason="mended now").ok
        return whole(item, end)

    monkeypatch.setattr(collect, "_outcome", overtaken)
    look(batch.pk)
    batch.refresh_from_db()
    assert batch.status == "running"
    assert batch.events.filter(action="stopped").count() == 1


def test_canaries_go_first_from_different_groups(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(3)] + [fail("9", failure=denied("else"))]
    batch = _drafted(letters, canary_size=2)
    assert {item.letter_id for item in batch.items.filter(is_canary=True)} == {letters[0].pk, letters[3].pk}
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    assert DeadLetter.objects.filter(status=LetterStatus.REPLAYING).count() == 2
    look(batch.pk)
    assert DeadLetter.objects.filter(status=LetterStatus.NEW).count() == 2  # the rest waits for them
    assert _run(batch, look, work).status == BatchStatus.FINISHED


@pytest.mark.long
def test_repeated_failure_stops_the_batch(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(4)]
    batch = _drafted(letters, max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    scripted.SCRIPT["llm"].extend([None, denied()])
    _run(batch, look, work)
    assert (batch.status, _outcomes(batch)) == ("stopped", ["succeeded", "failed", "pending", "pending"])
    assert "the same failure came back" in batch.status_reason


def test_single_new_failure_does_not_stop_the_batch(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(3)]
    batch = _drafted(letters, max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    scripted.SCRIPT["llm"].append(PermanentFailure(ErrorClass.NOT_FOUND, Component.REVIEWER, "no model"))
    scripted.SCRIPT["notify"].append(
        PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "gone")
    )
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert _outcomes(batch) == ["failed", "failed", "succeeded"]
    assert "the job failed later, in notify" in batch.items.order_by("id")[1].detail


def _no_model() -> PermanentFailure:
    return PermanentFailure(ErrorClass.NOT_FOUND, Component.REVIEWER, "no model")


def _gone() -> PermanentFailure:
    return PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, "gone")


@pytest.mark.parametrize(
    ("stage", "failure", "said"),
    [
        pytest.param("llm", _no_model, "NOT_FOUND", marks=pytest.mark.long),
        pytest.param("notify", _gone, "the job failed later, in notify", marks=pytest.mark.long),
    ],
)
def test_second_new_failure_of_one_group_stops_the_batch(
    fail: Fail, look: Look, work: Work, stage: str, failure: Callable[[], PermanentFailure], said: str
) -> None:
    batch = _drafted([fail(str(number)) for number in range(4)], max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    scripted.SCRIPT[stage].extend([failure(), failure()])
    _run(batch, look, work)
    assert (batch.status, _outcomes(batch)) == ("stopped", ["failed", "failed", "pending", "pending"])
    first, second = batch.items.filter(status=ItemStatus.FAILED).order_by("id")
    assert first.failed_group_id == second.failed_group_id
    group = (
        f"a second dead letter failed with the failure of group {first.failed_group_id}: "
        f"dead letter {second.letter_id}, "
    )
    assert batch.status_reason.startswith(group)
    assert said in batch.status_reason
    # Who resumes it has read why; once more is once more.
    batches.resume(batch.pk, actor="ann", reason="mended now")
    assert _run(batch, look, work).status == BatchStatus.FINISHED


@pytest.mark.long
def test_failures_of_another_batch_do_not_stop_this_one(fail: Fail, look: Look, work: Work) -> None:
    for numbers in ("12", "34"):
        batch = _drafted([fail(number) for number in numbers], max_in_flight=1)
        batches.submit(batch.pk, actor="ann")
        scripted.SCRIPT["llm"].append(_no_model())
        assert _run(batch, look, work).status == BatchStatus.FINISHED
        assert _outcomes(batch) == ["failed", "succeeded"]


@pytest.mark.long
def test_second_replay_without_effect_stops_the_batch(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = [Check(CheckKind.FINDINGS, False, "no findings are stored")]
    monkeypatch.setattr(JobRecovery, "verify", lambda self, failed: checks)
    batch = _drafted([fail(str(number)) for number in range(4)], max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    work()
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, _outcomes(batch)[0]) == ("running", "failed")
    _run(batch, look, work)
    assert (batch.status, _outcomes(batch)) == ("stopped", ["failed", "failed", "pending", "pending"])
    second = batch.items.order_by("id")[1]
    said = f"a second dead letter was replayed without effect: dead letter {second.letter_id}, "
    assert batch.status_reason == f"{said}the effect is missing: no findings are stored"


def test_open_circuit_stops_the_batch_and_unqueues_its_letters(
    fail: Fail, look: Look, work: Work, settings: Any
) -> None:
    settings.LLM_PROVIDER = "openai"
    CHECKS.clear()
    letters = [fail(str(number)) for number in range(4)]
    batch = _drafted(letters, max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    create("llm:openai")
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now()")
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, batch.status_reason) == ("stopped", "the circuit of llm:openai is open")
    assert _outcomes(batch) == ["replaying", "pending", "pending", "pending"]
    states = DeadLetter.objects.order_by("pk").values_list("status", flat=True)
    assert list(states) == ["replaying", *["validated"] * 3]
    work()
    look(batch.pk)  # a stopped batch still writes down what came of jobs at work
    assert _outcomes(batch)[0] == "succeeded"
    prepared.rows("DELETE FROM circuits")
    batches.resume(batch.pk, actor="ann")
    assert _run(batch, look, work).status == BatchStatus.FINISHED


def test_unavailable_dependency_stops_the_batch_and_skips_no_item(
    fail: Fail, look: Look, settings: Any
) -> None:
    settings.LLM_PROVIDER = "openai"
    CHECKS["llm"] = silent
    batch = _drafted([fail("1"), fail("2")])
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    batch.refresh_from_db()
    assert (batch.status, _outcomes(batch)) == ("stopped", ["pending", "pending"])


def test_pause_keeps_and_cancel_unqueues_letters(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail(str(number)) for number in range(4)]
    batch = _drafted(letters, max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    assert batches.pause(batch.pk, actor="bob", reason="lunch").ok
    work()
    look(batch.pk)
    look(batch.pk)
    assert _outcomes(batch) == ["succeeded", "ready", "ready", "ready"]
    assert batches.resume(batch.pk, actor="bob").ok
    look(batch.pk)
    cancelled = batches.cancel(batch.pk, actor="bob", reason="enough")
    assert cancelled.message == "cancelled; 2 dead letters were not replayed"
    work()
    look(batch.pk)
    assert _outcomes(batch) == ["succeeded", "succeeded", "cancelled", "cancelled"]
    assert DeadLetter.objects.filter(status=LetterStatus.VALIDATED).count() == 2
    assert [event.action for event in batch.events.all()] == [
        "drafted", "running", "paused", "running", "cancelled"
    ]  # fmt: skip


def test_batch_rate_is_kept(fail: Fail) -> None:
    batch = _drafted([fail(str(number)) for number in range(3)], rate_per_minute=60)
    batches.submit(batch.pk, actor="ann")
    seconds = batch_runs.look(batch.pk)
    replayed = ReplayItem.objects.filter(status=ItemStatus.REPLAYING).count()
    assert replayed == 1
    assert 0 < seconds <= 1.0


def test_concurrent_looks_replay_no_item_twice(fail: Fail, look: Look, work: Work) -> None:
    batch = _drafted([fail(str(number)) for number in range(3)])
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    item = ReplayItem.objects.filter(status=ItemStatus.REPLAYING).first()
    assert item is not None
    again = workflow.replay_from(LetterStatus.REPLAY_PENDING, item.letter_id, "x", "again", restart=False)
    assert not again.ok
    look(batch.pk)
    _run(batch, look, work)
    replays = prepared.value("SELECT max(n) FROM (SELECT count(*) AS n FROM dead_letter_events"
                        " WHERE action = 'replayed' GROUP BY letter_id) c")  # fmt: skip
    assert replays == 1


def test_one_letter_of_a_changelist_at_a_time(
    fail: Fail, look: Look, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = fail("1"), fail("2")
    monkeypatch.setattr(JobRecovery, "lanes", lambda self, jobs: dict.fromkeys(jobs, "same"))
    batch = _drafted([first, other])
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    look(batch.pk)
    assert _outcomes(batch) == ["replaying", "ready"]
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert _outcomes(batch) == ["succeeded", "succeeded"]


def test_letter_closed_by_an_operator_is_skipped_with_the_reason(fail: Fail, look: Look, work: Work) -> None:
    letters = [fail("1"), fail("2")]
    batch = _drafted(letters)
    workflow.discard(letters[0].pk, actor="bob", reason="OPS-2")
    batches.submit(batch.pk, actor="ann")
    _run(batch, look, work)
    assert _outcomes(batch) == ["skipped", "succeeded"]
    assert "it is already discarded (discarded by bob at" in batch.items.order_by("id")[0].detail


def test_ended_job_is_its_own_outcome(fail: Fail, look: Look) -> None:
    from reviews import pipeline

    letter = fail()
    batch = _drafted([letter])
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    pipeline.cancel(letter.job_id, "bob", "not needed")
    look(batch.pk)
    item = batch.items.get()
    assert (item.status, "not needed" in item.detail) == ("ended", True)
    assert ReviewJob.objects.get().status == JobStatus.CANCELLED


@pytest.mark.long
def test_stale_validation_after_a_pause_is_repeated(fail: Fail, look: Look, work: Work) -> None:
    batch = _drafted([fail("1"), fail("2")], max_in_flight=1)
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    batches.pause(batch.pk, actor="ann")
    work()
    DeadLetter.objects.filter(status="replay_pending").update(validated_at="2020-01-01T00:00:00Z")
    batches.resume(batch.pk, actor="ann")
    assert _run(batch, look, work).status == BatchStatus.FINISHED
    assert _outcomes(batch) == ["succeeded", "succeeded"]


def test_draft_requires_a_reason_letters_and_valid_settings(fail: Fail) -> None:
    letter = fail()
    for wrong in ({"rate_per_minute": 0}, {"canary_size": 101}, {"category": "weather"}, {"colour": 1},
                  {"evidence_link": "javascript:1"}):  # fmt: skip
        with pytest.raises(ValueError, match=r"between|category|unknown|must begin with"):
            _drafted([letter], **wrong)
    with pytest.raises(ValueError, match="None of these dead letters exists"):
        batches.draft(filter={}, ids=[999_999], actor="ann", reason="OPS-1")
    with pytest.raises(ValueError, match="A reason is required"):
        batches.draft(filter={}, ids=[letter.pk], actor="ann", reason=" ")
    assert not ReplayBatch.objects.exists()


def test_batch_message_is_republished_and_ends_with_the_batch(fail: Fail, work: Work) -> None:
    from criticizer.queue import outbox

    batch = _drafted([fail()])
    batches.submit(batch.pk, actor="ann")
    prepared.rows("DELETE FROM outbox_messages WHERE message_type = 'replay_batch'")
    batch_runs.ensure()
    for _ in range(6):
        prepared.rows("UPDATE outbox_messages SET available_at = now()")
        prepared.rows("UPDATE replay_batches SET next_item_at = NULL")
        for message in outbox.claim("stages", 10):
            if message.message_type == "replay_batch":
                batch_runs.run_message(message.id, message.aggregate_id, str(message.lease_token))
            else:
                from reviews.pipeline import executor

                executor.run_stage(message.id, message.aggregate_id, message.lease_token)
    batch.refresh_from_db()
    assert batch.status == BatchStatus.FINISHED
    assert not prepared.value("SELECT count(*) FROM outbox_messages")


def test_look_without_lease_does_nothing(fail: Fail) -> None:
    batch = _drafted([fail()])
    batches.submit(batch.pk, actor="ann")
    batch_runs.run_message(1, batch.pk, "00000000-0000-4000-8000-000000000000")
    assert _outcomes(batch) == ["pending"]
