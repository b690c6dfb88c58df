"""The send protocol: send, then mark; lost and false marks; one delivery each (G45 to G54)."""

from __future__ import annotations

import inspect
import re
import sys
import types
from datetime import timedelta

import pytest
import structlog
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from criticizer.resilience.failures import ErrorClass, PermanentFailure, RetryableFailure, UncertainFailure
from notifications.delivery import audit, operator_actions, snapshot, store
from notifications.delivery import send as sending
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Message
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.factories import DeliveryFactory, ReviewJobFactory
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
    untold,
)

D = DeliveryStatus


def lose_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next write after a send fail, for as long as the product tries."""

    def fails(claimed: store.Claim, notification_id: str) -> bool:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(store, "mark_sent", fails)


# -- sent, but not marked ----------------------------------------------------------------------


def test_sent_but_not_marked_is_looked_up_and_back_filled_without_resending(
    job: ReviewJob, asked: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = prepare(job, ANN)
    with monkeypatch.context() as patch:
        lose_the_mark(patch)
        with pytest.raises(RetryableFailure) as failed:  # never permanent before reconciliation
            deliver(job, {"mail": asked})
    assert failed.value.error_class is ErrorClass.DATABASE_UNAVAILABLE
    row.refresh_from_db()
    assert (row.status, row.notified_at) == (D.SENDING, None)  # still appears unsent

    assert deliver(job, {"mail": asked}).sent == 1
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.SENT, f"id-{row.token}")
    assert row.notified_at is not None
    assert len(asked.calls) == 1
    assert asked.looked_up == [(row.token, "")]


def test_a_prior_notification_id_is_what_the_provider_is_asked_about(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    asked.arrived[row.token] = 1
    Delivery.objects.filter(pk=row.pk).update(notification_id="prior-id")  # partially updated
    assert deliver(job, {"mail": asked}).sent == 1
    assert asked.looked_up == [(row.token, "prior-id")]
    assert asked.calls == []


def test_a_message_absent_at_the_provider_is_sent_again(job: ReviewJob, asked: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, asked.name)
    assert deliver(job, {"mail": asked}).sent == 1
    assert list(asked.arrived.values()) == [1]
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.ABSENT, SendOutcome.ACCEPTED]


def test_an_id_that_proved_wrong_is_cleared_before_the_message_is_sent_again(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    Delivery.objects.filter(pk=row.pk).update(notification_id="made-up")
    asked.script.append(not_sent())
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": asked})
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.PENDING, "")


def test_sent_but_not_marked_is_repeated_with_the_same_key_where_the_provider_deduplicates(
    job: ReviewJob, hook: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(job, CI)
    with monkeypatch.context() as patch:
        lose_the_mark(patch)
        with pytest.raises(RetryableFailure):
            deliver(job, {"webhook": hook})
    assert deliver(job, {"webhook": hook}).sent == 1
    assert hook.calls[0] == hook.calls[1]
    assert list(hook.arrived.values()) == [1]


def test_sent_but_not_marked_is_held_where_the_provider_has_no_look_up(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = prepare(job, ANN)
    with monkeypatch.context() as patch:
        lose_the_mark(patch)
        with pytest.raises(RetryableFailure):
            deliver(job, {"mail": mail})
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": mail})
    row.refresh_from_db()
    assert row.status == D.UNCERTAIN
    assert len(mail.calls) == 1


# -- marked, but not sent ----------------------------------------------------------------------


def marked_too_early(row: Delivery) -> None:
    """Write what a violation of the ordering contract would leave."""
    Delivery.objects.filter(pk=row.pk).update(status=D.SENDING, attempts=F("attempts") + 1)
    Delivery.objects.filter(pk=row.pk).update(status=D.SENT, notified_at=Now(), notification_id="made-up")


def test_marked_but_not_sent_is_cleared_requeued_alerted_and_then_sent(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    marked_too_early(row)
    with structlog.testing.capture_logs() as logs:
        result = audit.audit_sent({"mail": asked})
    assert (result.suspicious, result.requeued) == (1, {job.pk})
    alert = next(entry for entry in logs if entry["event"] == "delivery_evidence_missing")
    assert (alert["log_level"], alert["delivery"]) == ("error", row.pk)
    row.refresh_from_db()
    assert (row.status, row.notified_at, row.notification_id) == (D.PENDING, None, "")

    assert deliver(job, {"mail": asked}).sent == 1
    assert list(asked.arrived.values()) == [1]
    assert audit.audit_sent({"mail": asked}).suspicious == 0


def test_a_false_mark_is_back_filled_where_the_provider_has_the_message(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    asked.arrived[row.token] = 1
    marked_too_early(row)
    result = audit.audit_sent({"mail": asked})
    assert (result.back_filled, result.requeued) == (1, set())
    row.refresh_from_db()
    assert (row.status, row.notification_id) == (D.SENT, f"id-{row.token}")
    assert asked.calls == []


def test_a_false_mark_is_repeated_with_the_same_key_where_the_provider_deduplicates(
    job: ReviewJob, hook: ScriptedProvider
) -> None:
    (row,) = prepare(job, CI)
    marked_too_early(row)
    assert audit.audit_sent({"webhook": hook}).requeued == {job.pk}
    row.refresh_from_db()
    assert row.status == D.RECONCILING
    assert deliver(job, {"webhook": hook}).sent == 1
    assert list(hook.arrived.values()) == [1]


def test_a_false_mark_is_held_where_the_provider_has_no_look_up(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    marked_too_early(row)
    assert audit.audit_sent({"mail": mail}).held == 1
    with pytest.raises(UncertainFailure):
        deliver(job, {"mail": mail})
    assert mail.calls == []


def test_an_audit_without_an_answer_leaves_the_row_reconciling(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    marked_too_early(row)
    asked.look_up_failure = not_sent()
    assert audit.audit_sent({"mail": asked}).requeued == {job.pk}
    row.refresh_from_db()
    assert (row.status, row.notified_at) == (D.RECONCILING, None)
    asked.look_up_failure = None
    assert deliver(job, {"mail": asked}).sent == 1


def test_a_mail_deleted_by_its_recipient_is_not_sent_again(job: ReviewJob, asked: ScriptedProvider) -> None:
    prepare(job, ANN)
    deliver(job, {"mail": asked})
    asked.arrived.clear()
    assert audit.audit_sent({"mail": asked}).suspicious == 0
    assert asked.looked_up == []


def test_the_audit_can_be_limited_to_recent_changes(job: ReviewJob, asked: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    marked_too_early(row)
    Delivery.objects.filter(pk=row.pk).update(updated_at=Now() - timedelta(days=3))
    assert audit.audit_sent({"mail": asked}, within=timedelta(days=1)).suspicious == 0
    assert audit.audit_sent({"mail": asked}, within=timedelta(days=7)).suspicious == 1


# -- send, then mark ---------------------------------------------------------------------------


def test_marking_before_sending_is_refused_by_the_database(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    claimed = store.claim(store.read(row.pk), "smtp")
    assert claimed is not None
    with pytest.raises(IntegrityError, match="deliveries_send_then_mark"), transaction.atomic():
        store.mark_sent(claimed, "")  # before the provider has answered there is no id
    row.refresh_from_db()
    assert row.status == D.SENDING


def _marks_seen_while_sending(
    module: types.ModuleType, job: ReviewJob, mail: ScriptedProvider
) -> list[object]:
    seen: list[object] = []

    def look(message: Message) -> None:
        row = Delivery.objects.get(token=message.token)
        seen.append((row.status, row.notified_at is not None))

    mail.before_send = look
    module.deliver(job.pk, {"mail": mail}, may_continue=lambda: True)
    return seen


def test_the_row_is_not_marked_while_the_provider_works(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    assert _marks_seen_while_sending(sending, job, mail) == [(D.SENDING, False)]


def _mutated(monkeypatch: pytest.MonkeyPatch, early_mark: str) -> types.ModuleType:
    """Return the product's source with `early_mark` before the send, not the mark after it."""
    source = inspect.getsource(sending)
    send, mark = "notification_id = provider.send(message)", "_mark(row, claimed, notification_id)"
    assert source.count(f"        {send}\n") == source.count(f"    {mark}\n") == 1
    mutant = types.ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)  # dataclasses look their module up
    changed = source.replace(f"    {mark}\n", "    pass\n")
    changed = changed.replace(f"        {send}\n", f"        {early_mark}\n        {send}\n")
    exec(compile(changed, "mutant", "exec"), mutant.__dict__)
    return mutant


def test_code_with_the_order_reversed_is_detected_by_the_same_look(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above is not blind: with an id that is made up it sees the mark."""
    mutant = _mutated(monkeypatch, '_mark(row, claimed, "made-up")')
    prepare(job, ANN)
    assert _marks_seen_while_sending(mutant, job, mail) == [(D.SENT, True)]


def test_code_with_the_order_reversed_cannot_mark_at_all(
    job: ReviewJob, mail: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the provider has answered there is no id, and the CHECK refuses a mark without one."""
    mutant = _mutated(monkeypatch, '_mark(row, claimed, "")')
    (row,) = prepare(job, ANN)
    with pytest.raises(RetryableFailure) as refused_mark:
        mutant.deliver(job.pk, {"mail": mail}, may_continue=lambda: True)
    assert "could not be marked" in refused_mark.value.detail
    causes = str(refused_mark.value.__cause__.__cause__)
    assert "deliveries_send_then_mark" in causes
    assert mail.calls == []
    row.refresh_from_db()
    assert (row.status, row.notified_at) == (D.PENDING, None)


def test_a_time_of_notification_without_evidence_is_reconciled_before_any_send(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    asked.arrived[row.token] = 1
    Delivery.objects.filter(pk=row.pk).update(notified_at=Now())
    with structlog.testing.capture_logs() as logs:
        assert deliver(job, {"mail": asked}).sent == 1
    assert "delivery_evidence_missing" in [entry["event"] for entry in logs]
    assert asked.calls == []
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.FOUND]


def test_a_time_of_notification_without_evidence_and_absent_is_sent(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    Delivery.objects.filter(pk=row.pk).update(notified_at=Now())
    assert deliver(job, {"mail": asked}).sent == 1
    assert outcomes(row) == [SendOutcome.AMBIGUOUS, SendOutcome.ABSENT, SendOutcome.ACCEPTED]


# -- attempts ----------------------------------------------------------------------------------


def test_every_attempt_is_recorded_under_the_tuple(
    job: ReviewJob, mail: ScriptedProvider, hook: ScriptedProvider
) -> None:
    mail.script += [not_sent(), refused()]
    prepare(job, ANN, CI)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": mail, "webhook": hook})
    with pytest.raises(PermanentFailure):
        deliver(job, {"mail": mail, "webhook": hook})
    log = DeliveryAttempt.objects.order_by("id").values_list(
        "delivery__changelist_id", "delivery__recipient", "delivery__review_version", "number", "outcome"
    )
    assert list(log) == [
        ("12345", ANN, 1, 1, SendOutcome.NOT_SENT),
        ("12345", CI, 1, 1, SendOutcome.ACCEPTED),
        ("12345", ANN, 1, 2, SendOutcome.REJECTED),
    ]
    assert not DeliveryAttempt.objects.filter(finished_at__isnull=True).exists()


def test_transient_failures_are_retryable_and_keep_the_row_due(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    mail.script.append(not_sent())
    (row,) = prepare(job, ANN)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": mail})
    row.refresh_from_db()
    assert (row.status, row.error_class) == (D.PENDING, "NETWORK_UNREACHABLE")


@pytest.mark.parametrize("error_class", [ErrorClass.RECIPIENT_REJECTED, ErrorClass.POLICY_REJECTED])
def test_permanent_failures_mark_the_row_failed_for_an_operator(
    job: ReviewJob, mail: ScriptedProvider, error_class: ErrorClass
) -> None:
    mail.script.append(refused(error_class))
    (row,) = prepare(job, ANN)
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.error_class is error_class
    row.refresh_from_db()
    assert (row.status, row.error_class) == (D.FAILED, error_class)


# -- state before a send ---------------------------------------------------------------------------


def test_a_row_that_was_notified_is_skipped(job: ReviewJob, mail: ScriptedProvider) -> None:
    DeliveryFactory(job=job, recipient=ANN, status=D.SENT)
    prepare(job, ANN)
    assert deliver(job, {"mail": mail}) == sending.Outcome(already_sent=1)
    assert mail.calls == []


def test_id_time_and_state_are_one_write(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    with CaptureQueriesContext(connection) as statements:
        deliver(job, {"mail": mail})
    updates = re.findall(
        r'UPDATE "?deliveries"? SET (.+?)\sWHERE ', "\n".join(q["sql"] for q in statements), re.DOTALL
    )
    (written,) = [update for update in updates if "notified_at" in update]
    assert "status = 'sent'" in written
    assert "notification_id = " in written
    assert "notified_at = statement_timestamp()" in written  # the database's now()


def test_the_row_is_read_again_before_each_send(job: ReviewJob, mail: ScriptedProvider) -> None:
    _, second = prepare(job, ANN, BOB)

    def another_worker_tells_bob(message: Message) -> None:
        mail.before_send = lambda _: None
        claimed = store.claim(store.read(second.pk), "smtp")
        assert claimed is not None
        store.mark_sent(claimed, "by another worker")

    mail.before_send = another_worker_tells_bob
    assert deliver(job, {"mail": mail}) == sending.Outcome(sent=1, already_sent=1)
    assert [call.address for call in mail.calls] == ["ann@example.com"]


def test_neither_time_nor_id_is_safe_to_send(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    assert (row.notified_at, row.notification_id) == (None, "")
    assert deliver(job, {"mail": mail}).sent == 1


def test_an_id_without_a_time_may_have_been_sent(job: ReviewJob, mail: ScriptedProvider) -> None:
    (row,) = prepare(job, ANN)
    Delivery.objects.filter(pk=row.pk).update(notification_id="an-id")
    with pytest.raises(UncertainFailure):  # plain SMTP cannot be asked
        deliver(job, {"mail": mail})
    assert mail.calls == []


def test_a_job_is_complete_when_every_recipient_was_notified(job: ReviewJob, mail: ScriptedProvider) -> None:
    mail.script += [None, not_sent()]
    prepare(job, ANN, BOB)
    with pytest.raises(RetryableFailure):
        deliver(job, {"mail": mail})
    assert untold(job) == [BOB]
    deliver(job, {"mail": mail})
    assert untold(job) == []


# -- one delivery, one key -----------------------------------------------------------------------------------


def test_the_database_allows_one_row_per_recipient_and_version(job: ReviewJob) -> None:
    prepare(job, ANN)
    with pytest.raises(IntegrityError, match="deliveries_one_per_intent"), transaction.atomic():
        DeliveryFactory(job=job, recipient=ANN)


@pytest.mark.parametrize("point", ["attempt_written", "accepted"])
def test_a_retry_after_a_crash_reaches_the_recipient_once(
    job: ReviewJob, asked: ScriptedProvider, hook: ScriptedProvider, point: str
) -> None:
    for row, provider in zip(prepare(job, ANN, CI), (asked, hook), strict=True):
        crashed(row, provider.name)
        if point == "accepted":
            provider.arrived[row.token] = 1
    deliver(job, {"mail": asked, "webhook": hook})
    assert list(asked.arrived.values()) == list(hook.arrived.values()) == [1]


def test_state_is_checked_before_every_send(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    deliver(job, {"mail": mail})
    reads: list[str] = []

    def spy(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        if sql.startswith("SELECT") and '"deliveries"."notified_at"' in sql:
            reads.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(spy):
        deliver(job, {"mail": mail})
    assert len(reads) == 1
    assert len(mail.calls) == 1


def test_the_key_is_derived_from_the_tuple_and_the_same_on_every_attempt(
    job: ReviewJob, mail: ScriptedProvider
) -> None:
    mail.script += [not_sent(), not_sent()]
    prepare(job, ANN)
    for _ in range(2):
        with pytest.raises(RetryableFailure):
            deliver(job, {"mail": mail})
    deliver(job, {"mail": mail})
    assert {call.token for call in mail.calls} == {snapshot.token_for("12345", ANN, 1)}


def test_the_same_version_is_not_sent_again(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    deliver(job, {"mail": mail})
    prepare(job, ANN, text="the same version, reviewed again")
    assert deliver(job, {"mail": mail}) == sending.Outcome(already_sent=1)


def test_a_new_version_is_a_new_delivery(job: ReviewJob, mail: ScriptedProvider) -> None:
    prepare(job, ANN)
    deliver(job, {"mail": mail})
    # One active version a changelist: the first one ends.
    ReviewJob.objects.filter(pk=job.pk).update(status="in_progress")
    ReviewJob.objects.filter(pk=job.pk).update(status="succeeded", finished_at=Now())
    rerun = ReviewJobFactory(changelist_id="12345", review_version=2)
    prepare(rerun, ANN)
    assert deliver(rerun, {"mail": mail}).sent == 1
    assert len({call.token for call in mail.calls}) == 2


def test_rows_of_an_ended_job_are_reconciled_without_sending(
    job: ReviewJob, mail: ScriptedProvider, hook: ScriptedProvider, asked: ScriptedProvider
) -> None:
    found, absent, unknown = prepare(job, ANN, BOB, CI)
    for row, provider in ((found, asked), (absent, asked), (unknown, hook)):
        crashed(row, provider.name)
    asked.arrived[found.token] = 1
    assert audit.settle(job.pk, {"mail": asked, "webhook": hook}) == 0
    assert operator_actions.supersede_unsent(job.pk) == 1
    for row, status in ((found, D.SENT), (absent, D.SUPERSEDED), (unknown, D.UNCERTAIN)):
        row.refresh_from_db()
        assert row.status == status
    assert asked.calls == hook.calls == []
