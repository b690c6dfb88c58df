"""Edit requests: requested, approved by another operator, replaced by a new generation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from deadletters import batches, groups, workflow
from deadletters.edits import edit_requests
from deadletters.ingest import open_letter
from deadletters.models import DeadLetter, DeadLetterGroupDay, LetterArchive, LetterEdit, OperatorAlert
from deadletters.retention import letter_archive, policy
from deadletters.states import BEFORE_REPLAY, BatchStatus, EditStatus, LetterStatus
from deadletters.types import FieldKind, LetterDraft, WrongData
from notifications.delivery import operator_actions
from notifications.models import Delivery, Digest
from notifications.states import DeliveryStatus
from reviews.models import JobEvent, RecipientMode, RecipientOrigin, ReviewJob
from reviews.recipients import recipient_reports
from reviews.reports import report_of
from tests import factories
from tests.letters import remove

pytestmark = pytest.mark.django_db
ANN, BOB, CAROL = "mail:ann@example.com", "mail:bob@example.com", "mail:carol@example.com"


@pytest.fixture(autouse=True)
def _on(settings: Any) -> None:
    settings.DEADLETTER_EDIT = True


def make_letter(**fields: Any) -> DeadLetter:
    """A job whose notification failed for good: bob's address is refused, ann has been told."""
    job = factories.ReviewJobFactory(status="dead_lettered", recipients=[ANN, BOB])
    for stage, status in (("fetch", "succeeded"), ("llm", "succeeded"), ("notify", "failed")):
        factories.StageRunFactory(job=job, stage=stage, status=status)
    factories.DeliveryFactory(job=job, recipient=ANN, status=DeliveryStatus.SENT)
    factories.DeliveryFactory(
        job=job, recipient=BOB, status=DeliveryStatus.FAILED, error_class="RECIPIENT_REJECTED"
    )
    given = {"job": job, "stage": "notify", "error_class": "RECIPIENT_REJECTED", **fields}
    letter: DeadLetter = factories.DeadLetterFactory(**given)
    return letter


@pytest.fixture
def letter() -> DeadLetter:
    return make_letter(last_stack="Traceback", sanitized_context={"attempts": 1})


def ask(
    letter: DeadLetter,
    recipients: list[str] | None = None,
    actor: str = "ann",
    reason: str = "OPS-1: bob has left",
) -> Any:
    values = {"recipients": recipients if recipients is not None else [ANN, CAROL]}
    return edit_requests.request(letter.pk, actor=actor, values=values, reason=reason)


def asked(letter: DeadLetter, recipients: list[str] | None = None) -> LetterEdit:
    result = ask(letter, recipients)
    assert result.ok, result
    return LetterEdit.objects.get(letter=letter, status=EditStatus.REQUESTED)


def actions(letter: DeadLetter) -> list[str]:
    return [event.action for event in letter.events.order_by("id")]


def status_of(row: Any) -> str:
    row.refresh_from_db()
    return str(row.status)


# -- asking ------------------------------------------------------------------------------------


def test_identifying_fields_are_locked_with_a_reason(letter: DeadLetter) -> None:
    kinds = {field.name: field.kind for field in edit_requests.fields(letter)}
    assert kinds == {
        "changelist_id": FieldKind.LOCKED,
        "review_version": FieldKind.LOCKED,
        "idempotency_key": FieldKind.LOCKED,
        "deadline_at": FieldKind.LOCKED,
        "recipients": FieldKind.SENSITIVE,
    }
    assert all(field.help for field in edit_requests.fields(letter))


def test_requested_edit_changes_nothing_and_alerts_approvers(letter: DeadLetter) -> None:
    version = letter.row_version
    edit = asked(letter, [" ann@EXAMPLE.com ", "carol@example.com", "mail:carol@example.com", ""])
    assert (edit.before, edit.after) == ({"recipients": [ANN, BOB]}, {"recipients": [ANN, CAROL]})
    letter.refresh_from_db()
    assert (letter.status, letter.job.recipients) == ("new", [ANN, BOB])
    assert letter.row_version > version
    assert actions(letter) == ["edit_requested"]
    last = letter.events.get()
    assert last.reason.startswith(f"Recipients: {CAROL} added, {BOB} removed: OPS-1")
    assert OperatorAlert.objects.get().kind == "edit_requested"


def test_edits_are_refused_while_switched_off(letter: DeadLetter, settings: Any) -> None:
    edit = asked(letter)
    settings.DEADLETTER_EDIT = False
    for refused in (ask(make_letter()), edit_requests.approve(edit.pk, actor="bob", reason="checked")):
        assert not refused.ok
        assert "DEADLETTER_EDIT=true" in refused.message
    assert status_of(letter) == "new"
    assert edit_requests.refuse(
        edit.pk, actor="bob", reason="it is off"
    ).ok  # what waits can still be refused


@pytest.mark.parametrize("status", [s for s in LetterStatus if s not in BEFORE_REPLAY])
def test_only_letters_before_their_replay_are_edited(status: LetterStatus) -> None:
    late = make_letter(status=status)
    refused = ask(late)
    assert not refused.ok
    assert status.label.lower() in refused.message
    assert actions(late) == ["refused"]


@pytest.mark.parametrize("status", [BatchStatus.AWAITING, BatchStatus.RUNNING, BatchStatus.PAUSED])
def test_letter_in_a_submitted_batch_is_not_edited(letter: DeadLetter, status: BatchStatus) -> None:
    batch = batches.draft(filter={}, ids=[letter.pk], actor="ann", reason="OPS-1")
    type(batch).objects.filter(pk=batch.pk).update(
        status=BatchStatus.RUNNING if status == BatchStatus.PAUSED else status,
        needs_approval=status == BatchStatus.AWAITING,
    )
    type(batch).objects.filter(pk=batch.pk).update(status=status)
    assert ask(letter).message == f"batch {batch.pk} will replay the dead letter"


def test_letter_in_a_draft_batch_can_be_edited(letter: DeadLetter) -> None:
    batch = batches.draft(filter={}, ids=[letter.pk], actor="ann", reason="OPS-1")
    assert edit_requests.approve(asked(letter).pk, actor="bob", reason="checked").ok
    assert batches.dry_run(batch.pk)["verdicts"] == {"closed": 1}
    assert batches.progress(batch.pk).newer == 0  # the next generation is no new failure


def test_one_edit_of_a_letter_waits_at_a_time(letter: DeadLetter) -> None:
    asked(letter)
    assert ask(letter, actor="bob").message == "an edit of this dead letter already waits for approval"
    with pytest.raises(IntegrityError), transaction.atomic():
        LetterEdit.objects.create(letter=letter, before={}, after={}, reason="OPS-1", requested_by="x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"changelist_id": ["7"]}, "Changelist is locked. It identifies what is reviewed"),
        ({"idempotency_key": ["7"]}, "Idempotency key is locked."),
        ({"deadline_at": ["7"]}, "Deadline is locked. A replay sets a new deadline"),
        ({"weather": ["7"]}, "The job has no such field."),
        ({"recipients": ["not an address"]}, "not an address: A mail recipient"),
        ({"recipients": ["pigeon:ann"]}, "The channel 'pigeon' is unknown"),
        ({"recipients": ["", " "]}, "At least one recipient is required"),
        ({"recipients": [f"mail:a{n}@example.com" for n in range(101)]}, "at most 100 recipients"),
    ],
)
def test_invalid_edit_values_are_rejected_with_advice(
    letter: DeadLetter, values: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(WrongData) as wrong:
        edit_requests.request(letter.pk, actor="ann", values=values, reason="OPS-1")
    assert message in str(wrong.value)
    assert wrong.value.field == next(iter(values))
    assert not LetterEdit.objects.exists()


def test_edit_requires_a_reason_a_change_and_the_current_version(letter: DeadLetter) -> None:
    values = {"recipients": [ANN, CAROL]}
    assert not edit_requests.request(letter.pk, actor="ann", values=values, reason=" x ").ok
    assert ask(letter, [ANN, "BOB@example.com".lower()]).message == "nothing has changed"
    workflow.triage(letter.pk, actor="bob", category="data")
    late = edit_requests.request(
        letter.pk, actor="ann", values=values, reason="OPS-1", row_version=letter.row_version
    )
    assert "it was changed by bob" in late.message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (DeliveryStatus.SENT, "has been notified already and cannot be removed"),
        (DeliveryStatus.SENDING, "its delivery is sending and may have been made"),
        (DeliveryStatus.RECONCILING, "its delivery is reconciling and may have been made"),
        (DeliveryStatus.UNCERTAIN, "its delivery is uncertain and may have been made"),
    ],
)
def test_notified_recipient_cannot_be_removed(letter: DeadLetter, status: DeliveryStatus, words: str) -> None:
    Delivery.objects.filter(recipient=BOB).delete()
    factories.DeliveryFactory(job=letter.job, recipient=BOB, status=status)
    refused = ask(letter)
    assert not refused.ok
    assert refused.message.startswith(BOB)
    assert words in refused.message


def test_attempted_pending_delivery_is_not_cancelled(letter: DeadLetter) -> None:
    Delivery.objects.filter(recipient=BOB).delete()
    pending = factories.DeliveryFactory(job=letter.job, recipient=BOB, status=DeliveryStatus.PENDING)
    factories.DeliveryAttemptFactory(delivery=pending, outcome="started")
    assert "may have been made" in ask(letter).message


def test_unresolved_recipients_are_locked() -> None:
    job = factories.ReviewJobFactory(
        status="dead_lettered", recipients=[ANN], recipients_are=RecipientMode.TO_FIND
    )
    early = make_letter(job=job, stage="fetch")
    with pytest.raises(WrongData, match="Edit the subscriptions instead"):
        ask(early)


# -- four eyes ---------------------------------------------------------------------------------


def test_requester_cannot_approve_an_edit(letter: DeadLetter) -> None:
    edit = asked(letter)
    refused = edit_requests.approve(edit.pk, actor="ann", reason="quick")
    assert (refused.ok, refused.message) == (False, "you cannot approve your own edit")
    assert status_of(edit) == "requested"
    for name in ("ann", ""):
        refused_too = pytest.raises(IntegrityError, match="letter_edits_four_eyes")
        with refused_too, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "UPDATE letter_edits SET status = 'applied', decided_by = %s, decided_at = now()", [name]
            )


@pytest.mark.parametrize(
    "changes", ["after = '{}'", "before = '{}'", "requested_by = 'mallory'", "reason = 'another'"]
)
def test_requested_edit_is_immutable(letter: DeadLetter, changes: str) -> None:
    asked(letter)
    refused = pytest.raises(DatabaseError, match="Cannot update rows")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE letter_edits SET {changes}")


def test_requester_withdraws_and_others_refuse_an_edit(letter: DeadLetter) -> None:
    edit = asked(letter)
    assert not edit_requests.refuse(edit.pk, actor="ann", reason="changed my mind").ok
    assert not edit_requests.withdraw(edit.pk, actor="bob", reason="not mine").ok
    assert not edit_requests.refuse(edit.pk, actor="bob", reason=" ").ok
    assert edit_requests.withdraw(edit.pk, actor="ann", reason="changed my mind").ok
    second = asked(letter)
    assert edit_requests.refuse(second.pk, actor="bob", reason="carol may not read this").ok
    late = edit_requests.approve(second.pk, actor="carol", reason="late")
    assert late.message.startswith("already refused by bob at ")
    assert [status_of(edit), status_of(second), status_of(letter)] == ["withdrawn", "refused", "new"]
    assert actions(letter) == ["edit_requested", "edit_withdrawn", "edit_requested", "edit_refused"]


@pytest.mark.parametrize("ended_by", ["ann", "bob", "criticizer"])
def test_retention_is_postponed_after_an_unapplied_edit(ended_by: str) -> None:
    long_ago = timezone.now() - timedelta(days=30)
    letter = make_letter(first_failure_at=long_ago, last_failure_at=long_ago)
    edit = asked(letter)
    if ended_by == "ann":
        assert edit_requests.withdraw(edit.pk, actor="ann", reason="changed my mind").ok
    elif ended_by == "bob":
        assert edit_requests.refuse(edit.pk, actor="bob", reason="carol may not read this").ok
    else:
        ReviewJob.objects.update(recipients=[ANN])
        assert not edit_requests.approve(edit.pk, actor="bob", reason="checked").ok
    edit.refresh_from_db()
    assert edit.decided_by == ended_by
    assert policy.enforce(timezone.now()) == 0
    letter.refresh_from_db()
    assert letter.expires_at is not None
    assert letter.expires_at > timezone.now() + timedelta(days=6)


# -- applying ----------------------------------------------------------------------------------


def test_approved_edit_replaces_the_letter_by_its_next_generation(letter: DeadLetter) -> None:
    group = letter.group
    groups_before = (group.total_count, DeadLetterGroupDay.objects.count())
    edit = asked(letter)
    done = edit_requests.approve(edit.pk, actor="bob", reason="carol leads that team")
    assert done.ok
    letter.refresh_from_db()
    new = letter.generations.get()
    assert done.message == f"Approved. Replaced by dead letter {new.pk}"
    assert (letter.status, new.status, new.generation, new.parent) == ("discarded", "remediated", 2, letter)
    assert (new.category, new.triaged_by, new.remediated_by) == ("data", "ann", "ann")
    for name in ("job_id", "group_id", "stage", "error_class", "first_failure_at", "last_failure_at",
                 "payload_reference", "last_stack", "sanitized_context", "failed_replay_count"):  # fmt: skip
        assert getattr(new, name) == getattr(letter, name)
    assert actions(letter) == ["edit_requested", "edited", "discarded"]
    assert letter.events.last().reason == f"its data was edited: it was replaced by dead letter {new.pk}"
    assert actions(new) == ["created", "triaged", "remediated"]
    by = "requested by ann, approved by bob"
    assert by in new.events.get(action="created").reason
    assert f"generation 2 of dead letter {letter.pk}" in new.events.get(action="created").reason
    assert f"{CAROL} added" in new.evidence_note
    assert by in new.evidence_note
    group.refresh_from_db()
    assert group.open_count == 1
    assert (group.total_count, DeadLetterGroupDay.objects.count()) == groups_before  # no new occurrence
    edit.refresh_from_db()
    assert (edit.status, edit.decided_by, edit.decision_reason) == ("applied", "bob", "carol leads that team")


def test_approved_edit_changes_recipients_and_adds_a_job_event(letter: DeadLetter) -> None:
    ReviewJob.objects.update(
        recipients_are=RecipientMode.FOUND,
        recipient_origins={ANN: RecipientOrigin.OWN, BOB: RecipientOrigin.PERFORCE},
    )
    edit_requests.approve(asked(letter).pk, actor="bob", reason="checked")
    job = ReviewJob.objects.get()
    assert job.recipients == [ANN, CAROL]
    assert job.recipient_origins == {ANN: "own", BOB: "perforce"}
    assert (job.status, job.recipients_are) == ("dead_lettered", "found")
    event = JobEvent.objects.get()
    assert event.actor == "bob"
    assert "1 added, 1 removed; requested by ann, approved by bob" in event.reason
    assert event.context["removed"] == [BOB]
    states = dict(Delivery.objects.values_list("recipient", "status"))
    assert states == {ANN: "sent", BOB: "superseded"}


def test_recipient_added_again_keeps_its_origin(settings: Any) -> None:
    settings.UNKNOWN_RECIPIENTS = "named"
    letter = make_letter()
    Delivery.objects.filter(recipient=BOB).delete()
    ReviewJob.objects.update(
        recipients_are=RecipientMode.FOUND, recipient_origins={BOB: RecipientOrigin.PERFORCE}
    )
    assert edit_requests.approve(asked(letter, [ANN, CAROL]).pk, actor="bob", reason="checked").ok
    again = asked(letter.generations.get(), [ANN, BOB, CAROL])
    assert edit_requests.approve(again.pk, actor="bob", reason="checked").ok
    job = ReviewJob.objects.get()
    factories.FindingRowFactory(job=job, file="//depot/main/a.c")
    factories.CoverageRowFactory(job=job, file="//depot/main/a.c")
    shown = recipient_reports.reports_for(report_of(job), job.recipients, job.recipient_origins)
    assert len(shown[CAROL].findings) == 1  # two operators vouch for her
    assert len(shown[BOB].findings) == 0  # Perforce alone named him


def test_removed_recipients_delivery_never_becomes_due(letter: DeadLetter) -> None:
    edit_requests.approve(asked(letter).pk, actor="bob", reason="checked")
    operator_actions.reset_failed(letter.job_id)
    operator_actions.revive_cancelled(letter.job_id)
    assert Delivery.objects.get(recipient=BOB).status == DeliveryStatus.SUPERSEDED
    new = letter.generations.get()
    assert ask(new, [ANN, CAROL, BOB]).message == (
        f"{BOB} cannot be added: its delivery of this version is superseded"
    )


def test_removed_recipient_is_not_in_a_digest(letter: DeadLetter) -> None:
    Delivery.objects.filter(recipient=BOB).update(status=DeliveryStatus.PENDING)
    digest = Digest.objects.create(recipient=BOB, due_at=timezone.now())
    Delivery.objects.filter(recipient=BOB).update(digest=digest)
    assert edit_requests.approve(asked(letter).pk, actor="bob", reason="checked").ok
    row = Delivery.objects.get(recipient=BOB)
    assert (row.status, row.digest_id) == ("superseded", None)


def test_a_generation_can_be_edited_again_and_each_has_one_successor(letter: DeadLetter) -> None:
    edit_requests.approve(asked(letter).pk, actor="bob", reason="checked")
    second = letter.generations.get()
    assert edit_requests.approve(asked(second, [ANN]).pk, actor="bob", reason="checked").ok
    third = second.generations.get()
    assert (third.generation, third.parent_id) == (3, second.pk)
    with pytest.raises(IntegrityError, match="dead_letters_one_successor"), transaction.atomic():
        make_letter(parent=letter, generation=2)
    with pytest.raises(IntegrityError, match="dead_letters_generation"), transaction.atomic():
        make_letter(generation=2)


# -- changes before the approval --------------------------------------------------------------------


def _validated(letter: DeadLetter) -> None:
    workflow.triage(letter.pk, actor="dora", category="data")
    workflow.remediate(letter.pk, actor="dora", evidence_note="OPS-1")
    assert workflow.validate(letter.pk, actor="dora", override_reason="known").ok


def _replayed(letter: DeadLetter) -> None:
    _validated(letter)
    assert workflow.replay(letter.pk, actor="dora", reason="OPS-1").ok


def _failed_again(letter: DeadLetter) -> None:
    _replayed(letter)
    ReviewJob.objects.update(status="in_progress")
    ReviewJob.objects.update(status="dead_lettered", finished_at=timezone.now())
    open_letter(
        LetterDraft(
            job_id=letter.job_id, stage="notify", error_class="RECIPIENT_REJECTED", code=letter.code,
            severity="high", retryable=False, detail="", last_stack="", sanitized_context={},
            payload_reference="", attempts=1, first_failure_at=timezone.now(),
            last_failure_at=timezone.now(),
        )
    )  # fmt: skip


def _discarded(letter: DeadLetter) -> None:
    assert workflow.discard(letter.pk, actor="dora", reason="OPS-2").ok


def _other_data(letter: DeadLetter) -> None:
    ReviewJob.objects.update(recipients=[ANN])


def _batched(letter: DeadLetter) -> None:
    batch = batches.draft(filter={}, ids=[letter.pk], actor="dora", reason="OPS-1", evidence_note="OPS-1")
    assert batches.submit(batch.pk, actor="dora").ok


def _queued(letter: DeadLetter) -> None:
    _validated(letter)
    DeadLetter.objects.filter(pk=letter.pk).update(
        status="replay_pending", replay_reason="OPS-1", replayed_by="dora", replayed_at=timezone.now()
    )


def _notified_since(letter: DeadLetter) -> None:
    Delivery.objects.filter(recipient=BOB).update(status=DeliveryStatus.PENDING)
    Delivery.objects.filter(recipient=BOB).update(status=DeliveryStatus.SENDING)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_replayed, "the dead letter cannot be edited: it is already replaying (replayed "),
        (_failed_again, "the dead letter was replayed since the request"),
        (_discarded, "the dead letter cannot be edited: it is already discarded (discarded by dora"),
        (_batched, "will replay the dead letter"),
        (_other_data, "its recipients changed since the edit was requested"),
        (_notified_since, f"{BOB} cannot be removed: its delivery is sending"),
    ],
)
def test_stale_edit_is_refused_at_approval(
    letter: DeadLetter, change: Callable[[DeadLetter], None], words: str
) -> None:
    # A transaction's now() stands still: this one was asked for a while ago.
    edit = LetterEdit.objects.create(
        letter=letter,
        before={"recipients": [ANN, BOB]},
        after={"recipients": [ANN, CAROL]},
        reason="OPS-1",
        requested_by="ann",
        requested_at=timezone.now() - timedelta(hours=1),
    )
    change(letter)
    recipients = ReviewJob.objects.get().recipients
    refused = edit_requests.approve(edit.pk, actor="bob", reason="checked")
    assert not refused.ok
    assert words in refused.message
    edit.refresh_from_db()
    assert (edit.status, edit.decided_by) == ("refused", "criticizer")
    assert words in edit.decision_reason
    assert letter.events.last().action == "edit_refused"
    assert ReviewJob.objects.get().recipients == recipients
    assert DeadLetter.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (_replayed, 1),
        (_failed_again, 1),
        (_discarded, 1),
        (_validated, 0),
        (_batched, 0),  # the batch may be cancelled
        (_queued, 0),
        (_other_data, 0),  # it may be as it was again
    ],
)
def test_edits_that_can_no_longer_be_approved_are_refused(
    letter: DeadLetter, change: Callable[[DeadLetter], None], refused: int
) -> None:
    edit = LetterEdit.objects.create(
        letter=letter, before={}, after={}, reason="OPS-1", requested_by="ann",
        requested_at=timezone.now() - timedelta(hours=1),
    )  # fmt: skip
    assert edit_requests.refuse_stale() == 0
    change(letter)
    state = DeadLetter.objects.get().status
    assert (edit_requests.refuse_stale(), edit_requests.refuse_stale()) == (refused, 0)
    assert DeadLetter.objects.get().status == state
    assert status_of(edit) == ("refused" if refused else "requested")
    assert letter.events.filter(action="edit_refused", actor="criticizer").count() == refused
    # Who brought the letter where it is stays who it was.
    assert "by criticizer" not in workflow.discard(letter.pk, actor="eve", reason="OPS-9").message


def test_steps_before_a_replay_do_not_stop_an_edit(letter: DeadLetter) -> None:
    edit = asked(letter)
    _validated(letter)
    assert edit_requests.approve(edit.pk, actor="bob", reason="checked").ok


def test_edit_of_a_removed_letter_is_refused(letter: DeadLetter) -> None:
    edit = asked(letter)
    remove(letter.pk)
    refused = edit_requests.approve(edit.pk, actor="bob", reason="checked")
    assert refused.message == "the edit was refused: the dead letter no longer exists"
    assert status_of(edit) == "refused"


# -- where else generations and edits matter ---------------------------------------------------


def test_retention_keeps_letters_with_requested_edits(settings: Any) -> None:
    long_ago = timezone.now() - timedelta(days=30)
    old = {"first_failure_at": long_ago, "last_failure_at": long_ago}
    letter, untouched = make_letter(**old), make_letter(**old)
    edit = asked(letter)
    assert policy.enforce(timezone.now()) == 1
    assert not DeadLetter.objects.filter(pk=untouched.pk).exists()
    assert not OperatorAlert.objects.filter(kind="expiring").exists()
    settings.DLQ_MAX_SIZE = 1
    make_letter(status=LetterStatus.TRIAGED)
    assert policy.enforce(timezone.now()) == 0  # over size, and both are worked on
    assert edit_requests.approve(edit.pk, actor="bob", reason="checked").ok
    new = letter.generations.get()
    DeadLetter.objects.filter(pk=letter.pk).update(closed_at=long_ago)
    assert policy.enforce(timezone.now()) == 1
    new.refresh_from_db()
    assert (new.parent_id, new.status) == (letter.pk, "remediated")  # keeps the number of the one before
    assert LetterEdit.objects.get(pk=edit.pk).letter_id == letter.pk
    back = letter_archive.restore(LetterArchive.objects.order_by("-pk")[0], actor="ann", reason="OPS-1")
    assert back.letters == [letter.pk]
    assert new.parent is not None


def test_generation_that_fails_again_escalates(letter: DeadLetter) -> None:
    edit_requests.approve(asked(letter).pk, actor="bob", reason="checked")
    new = letter.generations.get()
    assert workflow.validate(new.pk, actor="ann", override_reason="known").ok
    assert workflow.replay(new.pk, actor="ann", reason="OPS-1").ok
    total = new.group.total_count
    ReviewJob.objects.update(status="in_progress")
    ReviewJob.objects.update(status="dead_lettered", finished_at=timezone.now())
    again = open_letter(
        LetterDraft(
            job_id=letter.job_id, stage="notify", error_class="RECIPIENT_REJECTED", code=letter.code,
            severity="high", retryable=False, detail="", last_stack="", sanitized_context={},
            payload_reference="", attempts=1, first_failure_at=timezone.now(),
            last_failure_at=timezone.now(),
        )
    )  # fmt: skip
    assert again == new.pk
    new.refresh_from_db()
    assert (new.status, new.generation, new.failed_replay_count, new.is_escalated) == ("new", 2, 1, True)
    new.group.refresh_from_db()
    assert new.group.total_count >= total
    assert status_of(letter) == "discarded"


def test_a_group_with_an_edited_letter_resolves_when_its_generation_is_closed(letter: DeadLetter) -> None:
    edit_requests.approve(asked(letter).pk, actor="bob", reason="checked")
    assert not groups.resolve_group(letter.group_id, actor="ann", reason="OPS-1").ok
    workflow.discard(letter.generations.get().pk, actor="ann", reason="OPS-1")
    assert groups.resolve_group(letter.group_id, actor="ann", reason="OPS-1").ok
