"""Prepare and deliver: every row to its end, in order, never by two workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat

import pytest
from django.db import IntegrityError, OperationalError, ProgrammingError, connection, transaction
from django.db.models import F

from criticizer.models import Circuit
from criticizer.resilience import overrides
from criticizer.resilience.failures import (
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.resilience.states import CircuitState
from notifications.delivery import audit, operator_actions, send, snapshot, store
from notifications.delivery.operator_actions import REPEAT_NOTICE
from notifications.delivery.prepare import create_deliveries
from notifications.models import Delivery, DeliveryAttempt
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.factories import ReviewJobFactory
from tests.notifications.samples import message
from tests.notifications.scripted import (
    ANN,
    BOB,
    CI,
    ScriptedProvider,
    crashed,
    deliver,
    not_sent,
    outcomes,
    prepare,
    refused,
    unclear,
    untold,
)

E = ErrorClass
D = DeliveryStatus


def statuses(job: ReviewJob) -> list[str]:
    return list(Delivery.objects.filter(job=job).order_by("id").values_list("status", flat=True))


# -- prepare -----------------------------------------------------------------------------------


def test_preparing_twice_makes_one_row_a_recipient(job: ReviewJob) -> None:
    first = prepare(job, ANN, CI)
    assert [row.pk for row in prepare(job, ANN, CI)] == [row.pk for row in first]
    assert [row.recipient for row in first] == [ANN, CI]


def test_a_row_that_was_never_sent_takes_the_newer_message(job: ReviewJob) -> None:
    prepare(job, ANN)
    (row,) = prepare(job, ANN, text="reviewed again")
    assert row.payload["text"] == "reviewed again"


def test_a_row_that_was_certainly_not_sent_takes_the_newer_message(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    mail.script.append(not_sent())
    prepare(job, ANN)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": mail})
    (row,) = prepare(job, ANN, text="reviewed again")
    assert row.payload["text"] == "reviewed again"


@pytest.mark.parametrize("state", ["crashed", "unclear", "released", "sent"])
def test_a_row_that_may_have_been_sent_keeps_the_bytes_that_were_sent(
    job: ReviewJob, mail: ScriptedProvider, state: str
) -> None:
    (row,) = prepare(job, ANN, text="as sent")
    if state == "crashed":
        crashed(row, "smtp")
    elif state in ("unclear", "released"):
        mail.script.append(unclear())
        with pytest.raises(UncertainFailure):
            deliver(job, {"mail": mail})
        if state == "released":
            assert operator_actions.resend_uncertain(row.pk, "ann", "not there")
    else:
        deliver(job, {"mail": mail})
    (row,) = prepare(job, ANN, text="reviewed again")
    assert row.payload["text"] == "as sent"


def test_a_message_with_another_recipients_token_is_refused(job: ReviewJob) -> None:
    token = snapshot.token_for("12345", BOB, 1)
    with pytest.raises(ValueError, match="token"):
        create_deliveries(job.pk, "12345", 1, {ANN: message(token=1)})
    with pytest.raises(ValueError, match="token"):
        create_deliveries(job.pk, "12345", 1, {BOB: replace(message("ann@example.com"), token=token)})
    assert not Delivery.objects.exists()


def test_tokens_differ_in_each_part_of_the_tuple_and_never_change() -> None:
    tuples = [("1", ANN, 1), ("1", ANN, 2), ("1", BOB, 1), ("2", ANN, 1), ("1", f'{ANN}", 1', 1)]
    assert len({snapshot.token_for(*key) for key in tuples}) == len(tuples)
    # Written down: a token that changed between releases would send every retry twice.
    assert str(snapshot.token_for("12345", ANN, 1)) == "63666591-0f2d-5478-a35d-b843e6276d4e"


# -- deliver -----------------------------------------------------------------------------------


def test_every_recipient_is_notified_once_and_the_rows_record_it(
    job: ReviewJob, mail: ScriptedProvider, hook: ScriptedProvider
) -> None:
    prepare(job, ANN, CI)
    outcome = deliver(job, {"mail": mail, "webhook": hook})
    assert outcome == send.Outcome(sent=2)
    for row in Delivery.objects.all():
        assert (row.status, row.attempts) == (D.SENT, 1)
        assert row.notification_id == f"id-{row.token}"
        assert row.notified_at is not None
        assert outcomes(row) == [SendOutcome.ACCEPTED]
    assert untold(job) == []


def test_delivering_again_sends_nothing(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    deliver(job, {"mail": mail})
    assert deliver(job, {"mail": mail}) == send.Outcome(already_sent=1)
    assert len(mail.calls) == 1


def test_a_row_that_is_gone_while_it_is_sent_makes_the_job_wait(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(job, ANN)

    def gone(delivery_id: int) -> Delivery:
        raise Delivery.DoesNotExist

    monkeypatch.setattr(store, "read", gone)
    with pytest.raises(DependencyUnavailable) as waits:
        deliver(job, {"mail": mail})
    assert (waits.value.dependency, waits.value.seconds) == ("", 0.0)


def test_a_job_without_recipients_is_done(job: ReviewJob) -> None:
    assert deliver(job, {}) == send.Outcome()


def test_the_sent_message_is_the_frozen_one(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    deliver(job, {"mail": mail})
    assert mail.calls == [replace(message(), token=snapshot.token_for("12345", ANN, 1))]


def test_an_unsent_message_is_repeated_with_the_same_bytes_and_token(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    mail.script.append(not_sent())
    (row,) = prepare(job, ANN)
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.error_class is E.NETWORK_UNREACHABLE
    assert statuses(job) == [D.PENDING]
    deliver(job, {"mail": mail})
    assert mail.calls[0] == mail.calls[1]
    assert outcomes(row) == [SendOutcome.NOT_SENT, SendOutcome.ACCEPTED]
    assert statuses(job) == [D.SENT]


def test_one_failing_recipient_does_not_stop_the_others(
    job: ReviewJob, mail: ScriptedProvider, hook: ScriptedProvider
) -> None:
    mail.script += [refused(), unclear()]
    prepare(job, ANN, BOB, CI)
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": mail, "webhook": hook})
    assert statuses(job) == [D.FAILED, D.UNCERTAIN, D.SENT]


def test_the_longest_retry_after_decides(job: ReviewJob, mail: ScriptedProvider) -> None:
    mail.script += [not_sent(E.UPSTREAM_UNAVAILABLE, 5), not_sent(E.UPSTREAM_UNAVAILABLE, 60), not_sent()]
    prepare(job, ANN, BOB, "mail:eve@example.com")
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.retry_after_seconds == 60
    assert failed.value.context["to_repeat"] == 3


@pytest.mark.parametrize(
    ("script", "raised"),
    [
        ([refused(), unclear(), not_sent()], RetryableFailure),
        ([refused(), unclear(), None], UncertainFailure),
        ([refused(E.AUTH_DENIED), None, None], PermanentFailure),
    ],
)
def test_retryable_failures_are_raised_before_uncertain_ones(
    job: ReviewJob, mail: ScriptedProvider, script: list[object], raised: type[Exception]
) -> None:
    mail.script += script
    prepare(job, ANN, BOB, "mail:eve@example.com")
    with pytest.raises(raised):
        deliver(job, {"mail": mail})


def test_a_refused_row_is_not_sent_again_until_it_is_reset(job: ReviewJob, mail: ScriptedProvider) -> None:
    mail.script.append(refused())
    prepare(job, ANN)
    for _ in range(2):
        with pytest.raises(PermanentFailure) as failed:
            deliver(job, {"mail": mail})
        assert failed.value.error_class is E.RECIPIENT_REJECTED
    assert len(mail.calls) == 1
    assert operator_actions.reset_failed(job.pk) == 1
    assert deliver(job, {"mail": mail}).sent == 1


def test_an_uncertain_row_is_never_sent_again_by_itself(job: ReviewJob, mail: ScriptedProvider) -> None:
    mail.script.append((unclear(), True))
    prepare(job, ANN)
    for _ in range(3):
        with pytest.raises(UncertainFailure) as failed:
            deliver(job, {"mail": mail})
        assert failed.value.error_class is E.DELIVERY_UNCERTAIN
        assert operator_actions.reset_failed(job.pk) == 0
    assert list(mail.arrived.values()) == [1]


def test_a_provider_that_deduplicates_is_asked_again_with_the_same_message(
    job: ReviewJob, hook: ScriptedProvider
) -> None:
    hook.script.append((unclear(E.UPSTREAM_INTERNAL), True))
    (row,) = prepare(job, CI)
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"webhook": hook})
    assert failed.value.error_class is E.UPSTREAM_INTERNAL
    assert statuses(job) == [D.RECONCILING]
    deliver(job, {"webhook": hook})
    assert hook.calls[0] == hook.calls[1]
    assert list(hook.arrived.values()) == [1]
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.ACCEPTED]


def test_a_refusal_after_an_uncertain_attempt_keeps_the_row_uncertain(
    job: ReviewJob, hook: ScriptedProvider
) -> None:
    hook.script += [(unclear(E.NETWORK_TIMEOUT), True), refused()]
    prepare(job, CI)
    with pytest.raises(RetryableFailure):
        deliver(job, {"webhook": hook})
    with pytest.raises(UncertainFailure):
        deliver(job, {"webhook": hook})
    assert statuses(job) == [D.UNCERTAIN]  # "failed" would be a lie: it arrived


def test_a_repetition_that_was_not_sent_keeps_the_row_reconciling(
    job: ReviewJob, hook: ScriptedProvider
) -> None:
    hook.script += [(unclear(E.NETWORK_TIMEOUT), True), not_sent()]
    prepare(job, CI)
    for _ in range(2):
        with pytest.raises(RetryableFailure):
            deliver(job, {"webhook": hook})
        assert statuses(job) == [D.RECONCILING]
    deliver(job, {"webhook": hook})
    assert statuses(job) == [D.SENT]


def test_a_provider_that_can_be_asked_is_asked_before_anything_is_repeated(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    asked.script += [(unclear(), True), unclear()]
    arrived, lost = prepare(job, ANN, BOB)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": asked})
    deliver(job, {"mail": asked})
    assert list(asked.arrived.values()) == [1, 1]
    assert outcomes(arrived) == [SendOutcome.AMBIGUOUS, SendOutcome.FOUND]
    assert outcomes(lost) == [SendOutcome.AMBIGUOUS, SendOutcome.ABSENT, SendOutcome.ACCEPTED]


def test_a_look_up_that_fails_leaves_the_question_open(job: ReviewJob, asked: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, asked.name)
    asked.look_up_failure = not_sent(E.UPSTREAM_UNAVAILABLE)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": asked})
    assert statuses(job) == [D.RECONCILING]
    assert asked.calls == []
    asked.look_up_failure = None
    assert deliver(job, {"mail": asked}).sent == 1


def test_another_providers_absence_proves_nothing(job: ReviewJob, asked: ScriptedProvider) -> None:
    """Mail went to SMTP, the worker died, and mail goes to a maildir since."""
    (row,) = prepare(job, ANN)
    crashed(row, "smtp")
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": asked})
    assert asked.calls == asked.looked_up == []
    assert statuses(job) == [D.UNCERTAIN]


def test_a_channel_without_a_provider_fails_its_row_only(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, CI, ANN)
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.error_class is E.CONFIG_INVALID
    assert statuses(job) == [D.FAILED, D.SENT]


def test_a_message_that_changed_in_the_database_is_not_sent(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    Delivery.objects.filter(pk=row.pk).update(payload={**row.payload, "text": "forged"})
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.error_class is E.INTERNAL_BUG
    assert mail.calls == []


def test_a_defect_in_a_provider_is_raised_after_the_others_were_notified(
    job: ReviewJob, mail: ScriptedProvider, asked: ScriptedProvider
) -> None:
    asked.script.append(ZeroDivisionError())
    (row, _) = prepare(job, ANN, BOB)
    with pytest.raises(ZeroDivisionError):
        deliver(job, {"mail": asked})
    assert statuses(job) == [D.RECONCILING, D.SENT]
    assert outcomes(row) == [SendOutcome.AMBIGUOUS]
    assert deliver(job, {"mail": asked}) == send.Outcome(sent=1, already_sent=1)


# -- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [[False], [True, False]])
def test_nothing_is_sent_once_the_job_may_not_continue(
    job: ReviewJob, mail: ScriptedProvider, answers: list[bool]
) -> None:
    prepare(job, ANN, BOB)
    told: Iterator[bool] = chain(answers, repeat(False))
    assert deliver(job, {"mail": mail}, lambda: next(told)) == send.Outcome(stopped=True)
    assert mail.calls == []
    assert statuses(job) == [D.PENDING, D.PENDING]


def test_a_job_that_is_superseded_between_two_sends_stops_there(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    prepare(job, ANN, BOB)
    superseded = False

    def supersede(_: object) -> None:
        nonlocal superseded
        superseded = True
        operator_actions.supersede_unsent(job.pk)

    mail.before_send = supersede
    outcome = deliver(job, {"mail": mail}, lambda: not superseded)
    assert outcome == send.Outcome(sent=1, stopped=True)
    assert statuses(job) == [D.SENT, D.SUPERSEDED]


@pytest.mark.parametrize(
    ("end", "status"),
    [(operator_actions.supersede_unsent, D.SUPERSEDED), (operator_actions.cancel_unsent, D.CANCELLED)],
)
def test_ending_a_job_withdraws_only_pending_rows(
    job: ReviewJob,
    mail: ScriptedProvider,
    end,
    status: DeliveryStatus,  # type: ignore[no-untyped-def]
) -> None:
    begun, _, _ = prepare(job, ANN, BOB, CI)
    crashed(begun, "smtp")
    assert end(job.pk) == 2
    assert statuses(job) == [D.SENDING, status, status]
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": mail})
    assert mail.calls == []


# -- two workers -------------------------------------------------------------------------------


def test_of_two_workers_that_read_the_same_row_one_sends(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    first, second = store.read(row.pk), store.read(row.pk)
    assert store.claim(first, "smtp") is not None
    assert store.claim(second, "smtp") is None
    assert DeliveryAttempt.objects.count() == 1


def test_a_worker_that_comes_too_late_sends_nothing(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = prepare(job, ANN)
    stale = store.read(row.pk)
    deliver(job, {"mail": mail})
    monkeypatch.setattr(store, "read", lambda delivery_id: stale)
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.error_class is E.WRITE_CONFLICT
    assert len(mail.calls) == 1


def test_a_late_worker_still_records_its_acceptance(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    claimed = store.claim(store.read(row.pk), "smtp")
    assert claimed is not None
    with pytest.raises(UncertainFailure):  # another worker has taken its attempt for lost
        deliver(job, {"mail": mail})
    assert store.mark_sent(claimed, "id-of-the-first")
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.SENT, "id-of-the-first")
    assert outcomes(row) == [SendOutcome.ACCEPTED]


def test_a_late_acceptance_is_found_before_a_requeued_row_is_sent_again(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    claimed = store.claim(store.read(row.pk), asked.name)
    assert claimed is not None
    assert audit.settle(job.pk, {"mail": asked}) == 0  # absent: back to pending
    assert not store.mark_sent(claimed, "late-id")
    assert deliver(job, {"mail": asked}).sent == 1
    row.refresh_from_db()
    assert row.notification_id == "late-id"
    assert asked.calls == []


def test_a_late_failure_does_not_undo_the_next_attempt(job: ReviewJob, hook: ScriptedProvider) -> None:
    (row,) = prepare(job, CI)
    claimed = store.claim(store.read(row.pk), hook.name)
    assert claimed is not None
    deliver(job, {"webhook": hook})
    assert not store.record_failure(claimed, SendOutcome.NOT_SENT, D.PENDING, not_sent())
    assert statuses(job) == [D.SENT]


# -- the database ------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_sending_inside_a_transaction_is_refused(mail: ScriptedProvider) -> None:
    job = ReviewJobFactory(changelist_id="12345")
    prepare(job, ANN)
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        deliver(job, {"mail": mail})
    assert mail.calls == []


@pytest.mark.django_db(transaction=True)
def test_no_transaction_is_open_while_a_provider_works_and_the_attempt_is_on_disk(
    mail: ScriptedProvider,
) -> None:
    job = ReviewJobFactory(changelist_id="12345")
    (row,) = prepare(job, ANN)
    seen: list[tuple[bool, str, list[str]]] = []
    mail.before_send = lambda _: seen.append(
        (connection.in_atomic_block, store.read(row.pk).status, outcomes(row))
    )
    deliver(job, {"mail": mail})
    assert seen == [(False, D.SENDING, [SendOutcome.STARTED])]


@pytest.mark.django_db(transaction=True)
def test_a_short_database_outage_loses_no_outcome(
    mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL restarts between the acceptance and the mark."""
    job = ReviewJobFactory(changelist_id="12345")
    prepare(job, ANN)
    real, failures, pauses = store.mark_sent, iter([1, 1]), []

    def flaky(claimed: store.Claim, notification_id: str) -> bool:
        if next(failures, None):
            raise OperationalError("the connection is lost")
        return real(claimed, notification_id)

    monkeypatch.setattr(store, "mark_sent", flaky)
    monkeypatch.setattr(store.recorded, "__defaults__", (pauses.append,))
    assert deliver(job, {"mail": mail}).sent == 1
    assert pauses == list(store.RECORD_PAUSES_SECONDS[:2])
    assert statuses(job) == [D.SENT]


@pytest.mark.parametrize(
    "change",
    [
        {"status": D.SENT},
        {"status": D.SENT, "notified_at": F("created_at")},
        {"status": D.SENT, "notification_id": "x"},
        {"notified_at": F("created_at"), "notification_id": "x"},
    ],
)
def test_the_database_refuses_sent_without_both_markers(job: ReviewJob, change: dict[str, object]) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, "smtp")
    with pytest.raises(IntegrityError, match="deliveries_send_then_mark"), transaction.atomic():
        Delivery.objects.filter(pk=row.pk).update(**change)


@pytest.mark.parametrize(
    ("before", "after"), [(D.PENDING, D.SENT), (D.FAILED, D.SENDING), (D.UNCERTAIN, D.SENDING)]
)
def test_the_database_refuses_transitions_that_are_not_in_the_table(
    job: ReviewJob, before: DeliveryStatus, after: DeliveryStatus
) -> None:
    (row,) = prepare(job, ANN)
    if before is not D.PENDING:
        crashed(row, "smtp")
        Delivery.objects.filter(pk=row.pk).update(status=before)
    with pytest.raises(ProgrammingError, match="Invalid transition"), transaction.atomic():
        Delivery.objects.filter(pk=row.pk).update(
            status=after, notified_at=F("created_at") if after is D.SENT else None, notification_id="x"
        )


# -- operators ---------------------------------------------------------------------------------


@pytest.fixture
def uncertain(job: ReviewJob, mail: ScriptedProvider) -> Delivery:
    mail.script.append(unclear())
    (row,) = prepare(job, ANN)
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": mail})
    return row


def test_a_confirmation_records_actor_and_reason(
    uncertain: Delivery, job: ReviewJob, mail: ScriptedProvider
) -> None:
    assert operator_actions.confirm_delivered(uncertain.pk, "ann", "seen in the mailbox")
    uncertain.refresh_from_db()
    assert uncertain.status == D.SENT
    assert uncertain.notified_at is not None
    last = uncertain.attempt_rows.last()
    assert last is not None
    assert (last.outcome, last.detail) == (SendOutcome.CONFIRMED, "confirmed by ann: seen in the mailbox")
    assert deliver(job, {"mail": mail}) == send.Outcome(already_sent=1)
    assert audit.audit_sent({"mail": mail}).suspicious == 0


def test_an_operator_resends_once(uncertain: Delivery, job: ReviewJob, mail: ScriptedProvider) -> None:
    assert operator_actions.resend_uncertain(uncertain.pk, "ann", "not in the mailbox")
    assert not operator_actions.resend_uncertain(uncertain.pk, "bob", "me too")
    assert deliver(job, {"mail": mail}).sent == 1
    assert outcomes(uncertain) == [SendOutcome.AMBIGUOUS, SendOutcome.RELEASED, SendOutcome.ACCEPTED]
    first, second = mail.calls
    assert first.repeat_notice == ""
    assert second == replace(first, repeat_notice=REPEAT_NOTICE)  # the same token, and it says so


def test_a_job_does_not_need_an_abandoned_delivery(
    uncertain: Delivery, job: ReviewJob, mail: ScriptedProvider
) -> None:
    assert untold(job) == [ANN]
    assert operator_actions.abandon_uncertain(uncertain.pk, "ann", "she has left")
    assert deliver(job, {"mail": mail}) == send.Outcome(withdrawn=1)
    assert untold(job) == []
    assert outcomes(uncertain) == [SendOutcome.AMBIGUOUS, SendOutcome.ABANDONED]
    assert len(mail.calls) == 1


def test_late_acceptance_marks_an_abandoned_delivery_as_sent(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    claimed = store.claim(store.read(row.pk), "smtp")
    assert claimed is not None
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": mail})
    operator_actions.abandon_uncertain(row.pk, "ann", "she has left")
    assert store.mark_sent(claimed, "it arrived")
    assert statuses(job) == [D.SENT]


@pytest.mark.parametrize(
    "decide",
    [
        operator_actions.confirm_delivered,
        operator_actions.resend_uncertain,
        operator_actions.abandon_uncertain,
    ],
)
def test_decisions_need_a_reason_and_an_uncertain_row(job: ReviewJob, decide) -> None:  # type: ignore[no-untyped-def]
    (row,) = prepare(job, ANN)
    with pytest.raises(ValueError, match="reason"):
        decide(row.pk, "ann", "  ")
    assert not decide(row.pk, "ann", "because")
    assert statuses(job) == [D.PENDING]


# -- workers that meet ---------------------------------------------------------------------------


def test_a_row_that_was_tried_since_it_was_read_is_not_claimed(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    stale, claimed = store.read(row.pk), store.claim(row, mail.name)
    assert claimed is not None
    assert store.record_failure(claimed, SendOutcome.AMBIGUOUS, D.RECONCILING, unclear())
    assert store.claim(stale, mail.name) is None
    assert statuses(job) == [D.RECONCILING]


def test_a_worker_taken_for_lost_moves_no_row_that_another_is_sending(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    lost = store.claim(row, mail.name)
    assert lost is not None
    assert store.start_reconciling(store.read(row.pk))
    assert store.claim(store.read(row.pk), mail.name) is not None
    assert not store.record_failure(lost, SendOutcome.NOT_SENT, D.PENDING, not_sent())
    assert statuses(job) == [D.SENDING]


# -- one writer --------------------------------------------------------------------------------


def test_only_the_store_writes_states() -> None:
    from pathlib import Path

    app = Path(send.__file__).parents[1]
    for path in app.rglob("*.py"):
        if path.parent.name in {"models", "migrations", "digests"} or path.name in {"store.py", "states.py"}:
            continue
        text = path.read_text()
        assert ".status = " not in text, path.name
        assert "update(status" not in text.replace("\n", "").replace(" ", ""), path.name


# -- time --------------------------------------------------------------------------------------


def test_a_run_out_of_time_tries_one_row_and_the_next_run_goes_on_with_the_others(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "SENDING_SECONDS", 1e-9)
    rows = prepare(job, *(f"mail:{name}@example.com" for name in "abcd"))
    mail.script.extend([not_sent(E.NETWORK_TIMEOUT), None])
    first = deliver(job, {"mail": mail})
    assert (first.is_out_of_time, first.tried) == (True, {str(rows[0].pk): "NETWORK_TIMEOUT"})
    second = deliver(job, {"mail": mail}, tried=first.tried)
    third = deliver(job, {"mail": mail}, tried=second.tried)
    assert statuses(job) == [D.PENDING, D.SENT, D.SENT, D.PENDING]
    # The last row ends the attempt: what failed in it is repeated by the next one.
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"mail": mail}, tried=third.tried)
    assert failed.value.error_class is E.NETWORK_TIMEOUT
    assert statuses(job) == [D.PENDING, D.SENT, D.SENT, D.SENT]
    assert [message.address[0] for message in mail.calls] == ["a", "b", "c", "d"]
    deliver(job, {"mail": mail})
    assert statuses(job) == [D.SENT] * 4


def test_a_pause_that_was_asked_for_in_an_earlier_run_is_kept(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "SENDING_SECONDS", 1e-9)
    prepare(job, ANN, BOB)
    mail.script.append(not_sent(E.UPSTREAM_UNAVAILABLE, wait=100.0))
    first = deliver(job, {"mail": mail})
    assert first.is_out_of_time
    # A worker of an older version may go on: it reads the class of a row.
    assert first.tried[str(job.deliveries.order_by("pk")[0].pk)] == "UPSTREAM_UNAVAILABLE"
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"mail": mail}, tried=first.tried)
    assert failed.value.error_class is E.UPSTREAM_UNAVAILABLE
    assert 90 < (failed.value.retry_after_seconds or 0.0) <= 101


def test_rows_that_wait_come_after_the_others_when_the_time_is_used_up(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "SENDING_SECONDS", 1e-9)
    rows = prepare(job, CI, ANN)
    name = "provider:webhook:ci.example.com"
    Circuit.objects.create(name=name)
    overrides.force(name, CircuitState.FORCED_OPEN, actor="ann", reason="OPS-1", seconds=60.0)
    providers = {"mail": mail, "webhook": ScriptedProvider("webhook")}
    first = deliver(job, providers)
    assert first.tried == {str(rows[0].pk): f"waits:{name}"}
    with pytest.raises(DependencyUnavailable) as waiting:
        deliver(job, providers, tried=first.tried)
    assert waiting.value.dependency == name
    assert statuses(job) == [D.PENDING, D.SENT]
