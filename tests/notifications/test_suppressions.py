"""Bounced or complaining addresses get no mail until an operator lifts the suppression."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from notifications.delivery import operator_actions
from notifications.models import Delivery, Suppression
from notifications.states import DeliveryState, DeliveryStatus, SendOutcome
from notifications.suppressions import bounces
from notifications.suppressions.bounces import MailReport
from reviews.models import ReviewJob
from tests.notifications.scripted import (
    ANN,
    BOB,
    ScriptedProvider,
    crashed,
    deliver,
    outcomes,
    prepare,
    untold,
)

D, S, REASON = DeliveryStatus, DeliveryState, Suppression.Reason


@pytest.fixture
def resend() -> ScriptedProvider:
    return ScriptedProvider("resend", deduplicates=True)


def sent(job: ReviewJob, provider: ScriptedProvider, *recipients: str) -> list[Delivery]:
    rows = prepare(job, *recipients)
    deliver(job, {"mail": provider})
    for row in rows:
        row.refresh_from_db()
        assert row.status == D.SENT
    return rows


def report(row: Delivery, **changes: Any) -> MailReport:
    fields: dict[str, Any] = {
        "provider": row.provider,
        "event_id": "event-1",
        "state": S.BOUNCED,
        "notification_id": row.notification_id,
        "token": None,
        "address": row.recipient.partition(":")[2],
        "reason": REASON.BOUNCED,
        "detail": "550 no such user ann@example.com",
    }
    return MailReport(**{**fields, **changes})


def suppress(address: str = "ann@example.com") -> Suppression:
    return Suppression.objects.create(
        address=address, reason=REASON.BOUNCED, provider="resend", event_id=str(uuid4())
    )


def suppresses(report: MailReport) -> bool:
    before = Suppression.objects.count()
    bounces.record(report)
    return Suppression.objects.count() > before


# -- a late bounce -----------------------------------------------------------------------------


def test_a_late_bounce_is_noted_suppresses_the_address_and_leaves_the_delivery_sent(
    job: ReviewJob, resend: ScriptedProvider
) -> None:
    (row,) = sent(job, resend, ANN)
    before = (row.status, row.notification_id, row.notified_at)
    assert suppresses(report(row))
    row.refresh_from_db()
    assert (row.status, row.notification_id, row.notified_at) == before
    assert row.delivery_state == S.BOUNCED
    assert row.delivery_state_at is not None
    found = Suppression.objects.get()
    assert (found.address, found.reason, found.event_id) == ("ann@example.com", "bounced", "event-1")
    assert untold(job) == []


def test_the_same_event_twice_is_one_suppression(job: ReviewJob, resend: ScriptedProvider) -> None:
    (row,) = sent(job, resend, ANN)
    assert suppresses(report(row))
    assert not suppresses(report(row))
    assert not suppresses(report(row, event_id="event-2"))
    assert Suppression.objects.count() == 1


def test_a_handled_event_does_not_suppress_again_after_the_lift(
    job: ReviewJob, resend: ScriptedProvider
) -> None:
    (row,) = sent(job, resend, ANN)
    bounces.record(report(row))
    assert bounces.lift(Suppression.objects.get().pk, actor="ann", reason="mended")
    assert not suppresses(report(row))
    assert suppresses(report(row, event_id="event-2"))


def test_a_report_is_matched_by_our_token_when_its_id_is_not_known_yet(
    job: ReviewJob, resend: ScriptedProvider
) -> None:
    (row,) = prepare(job, ANN)
    crashed(row, "resend")  # the worker was lost before it could write the id down
    row.refresh_from_db()
    assert suppresses(report(row, notification_id="unknown-yet", token=row.token))


@pytest.mark.parametrize(
    "changes",
    [
        {"notification_id": "of another account"},
        {"notification_id": "", "token": None},
        {"provider": "postmark"},
        {"address": "mallory@example.com"},
    ],
)
def test_a_report_of_a_mail_that_is_not_ours_changes_nothing(
    job: ReviewJob, resend: ScriptedProvider, changes: dict[str, Any]
) -> None:
    (row,) = sent(job, resend, ANN)
    bounces.record(report(row, **changes))
    row.refresh_from_db()
    assert row.delivery_state == ""
    assert not Suppression.objects.exists()


def test_a_later_report_of_less_weight_takes_nothing_back(job: ReviewJob, resend: ScriptedProvider) -> None:
    (row,) = sent(job, resend, ANN)
    seen = []
    for state in (S.DEFERRED, S.DELIVERED, S.DEFERRED, S.BOUNCED, S.DELIVERED, S.COMPLAINED, S.BOUNCED):
        bounces.record(report(row, state=state, reason=None))
        row.refresh_from_db()
        seen.append(row.delivery_state)
    assert seen == ["deferred", "delivered", "delivered", "bounced", "bounced", "complained", "complained"]
    assert not Suppression.objects.exists()


# -- sending -----------------------------------------------------------------------------------


def test_a_suppressed_recipient_is_refused_before_any_send_and_does_not_hold_up_the_others(
    job: ReviewJob, resend: ScriptedProvider
) -> None:
    suppress()
    ann, bob = prepare(job, ANN, BOB)
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, {"mail": resend})
    assert failed.value.error_class is ErrorClass.RECIPIENT_REJECTED
    ann.refresh_from_db()
    bob.refresh_from_db()
    assert (ann.status, bob.status) == (D.FAILED, D.SENT)
    assert ann.detail.startswith("no mail is sent to this address since ")
    assert "mail to it bounced for good" in ann.detail
    assert "example.com" not in ann.detail
    assert outcomes(ann) == []
    assert [message.address for message in resend.calls] == ["bob@example.com"]


def test_after_the_lift_a_replay_sends(job: ReviewJob, resend: ScriptedProvider) -> None:
    found = suppress()
    (row,) = prepare(job, ANN)
    with pytest.raises(PermanentFailure):
        deliver(job, {"mail": resend})
    assert bounces.lift(found.pk, actor="ann", reason="the mailbox was mended")
    assert not bounces.lift(found.pk, actor="bob", reason="again")
    operator_actions.reset_failed(job.pk)
    assert deliver(job, {"mail": resend}).sent == 1
    assert outcomes(row) == [SendOutcome.ACCEPTED]


def test_upper_case_makes_no_other_mailbox(job: ReviewJob, resend: ScriptedProvider) -> None:
    suppress()
    prepare(job, "mail:Ann@example.com")
    with pytest.raises(PermanentFailure):
        deliver(job, {"mail": resend})
    assert resend.calls == []


def test_an_uncertain_delivery_to_a_suppressed_address_is_reconciled(
    job: ReviewJob, asked: ScriptedProvider
) -> None:
    suppress()
    (row,) = prepare(job, ANN)
    crashed(row, asked.name)
    asked.arrived[row.token] = 1
    assert deliver(job, {"mail": asked}).sent == 1


def test_other_channels_are_not_mail(db: None) -> None:
    suppress("ann@example.com")
    bounces.refuse_suppressed("webhook:https://ci.example.com/ann@example.com")


# -- rows that are their own history -----------------------------------------------------------


def test_a_lift_needs_a_reason(db: None) -> None:
    found = suppress()
    with pytest.raises(ValueError, match="reason is required"):
        bounces.lift(found.pk, actor="ann", reason="  ")
    with pytest.raises(IntegrityError, match="suppressions_lifted_by_somebody"), transaction.atomic():
        Suppression.objects.filter(pk=found.pk).update(lifted_at=timezone.now())


@pytest.mark.parametrize("change", [{"address": "x@y"}, {"reason": "complained"}, {"event_id": "other"}])
def test_recorded_facts_cannot_be_changed(db: None, change: dict[str, str]) -> None:
    found = suppress()
    with pytest.raises(DatabaseError), transaction.atomic():
        Suppression.objects.filter(pk=found.pk).update(**change)


def test_suppressions_are_neither_deleted_nor_lifted_twice(db: None) -> None:
    found = suppress()
    with pytest.raises(DatabaseError), transaction.atomic():
        Suppression.objects.filter(pk=found.pk).delete()
    bounces.lift(found.pk, actor="ann", reason="mended")
    with pytest.raises(DatabaseError), transaction.atomic():
        Suppression.objects.filter(pk=found.pk).update(lift_reason="another story")
