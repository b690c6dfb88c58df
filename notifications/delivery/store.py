"""Guarded writes of delivery rows: each one short commit, each with its count checked.

Nothing else in this room writes a state. The number of attempts of a row is its fence: a
worker records what came of attempt n only while the row is still at attempt n.

A row that carries a digest takes the others of it along, in the same UPDATE; attempts and what was
learned are kept with the carrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.redaction import clean
from criticizer.resilience.failures import Failure
from notifications.digests import lifecycle
from notifications.digests.lifecycle import Closing
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Evidence
from notifications.states import DOUBTFUL_DELIVERY, DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

T = TypeVar("T")

# What came of a send lives only in this process until it is written, and a lost answer of a mail
# server costs an operator's decision: minutes, as workers wait for a lost database everywhere.
RECORD_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0, 30.0)

_OPEN_OUTCOMES = (SendOutcome.STARTED, SendOutcome.ACCEPTED)
_GIVEN_UP = (DeliveryStatus.SUPERSEDED, DeliveryStatus.CANCELLED)
_UNSENT_MARK = {"notified_at": None, "notification_id": ""}
_NOTED = {Evidence.ABSENT: SendOutcome.ABSENT, Evidence.UNKNOWN: SendOutcome.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send one delivery once. `attempt` counts from 1 over the row's life."""

    delivery_id: int
    attempt: int
    attempt_id: int
    digest_id: int | None = None  # of what is told in one message


def read(delivery_id: int) -> Delivery:
    """Return the row as it is now (specification 004, 6.4: re-read before anything else)."""
    return Delivery.objects.get(pk=delivery_id)


def may_have_happened(row: Delivery) -> bool:
    """Say whether an earlier attempt could have reached the recipient (004, 6.4)."""
    return (
        row.status in DOUBTFUL_DELIVERY
        or bool(row.notification_id)
        or row.notified_at is not None
        or _attempts(row).filter(outcome__in=_OPEN_OUTCOMES).exists()
    )


def accepted_id(row: Delivery) -> str:
    """Return the provider's id that an earlier attempt was given, or nothing."""
    accepted = _attempts(row).filter(outcome=SendOutcome.ACCEPTED).exclude(notification_id="").last()
    return accepted.notification_id if accepted else ""


def claim(row: Delivery, provider: str) -> Claim | None:
    """Move the row to SENDING with an attempt written as started; None when another was faster.

    A digest that is due is closed in the same commit: its message is fixed before it can be sent.
    """
    # durable: the attempt must be on disk before the provider is called. Inside an outer
    # transaction it would not be, and Django refuses.
    with transaction.atomic(durable=True):
        digest_id = row.digest_id
        if digest_id is not None:
            closing = lifecycle.close(row)
            if closing is Closing.TAKEN:
                return None
            digest_id = digest_id if closing is Closing.TOGETHER else None
        moved = _move(
            row.pk,
            digest_id,
            (DeliveryStatus.PENDING, DeliveryStatus.RECONCILING),
            DeliveryStatus.SENDING,
            attempts=row.attempts,
            changes={"attempts": F("attempts") + 1, "provider": provider, "error_class": "", "detail": ""},
        )
        if not moved:
            transaction.set_rollback(True)  # of the digest that was closed for it
            return None
        attempt = DeliveryAttempt.objects.create(delivery_id=row.pk, number=row.attempts + 1)
    return Claim(row.pk, row.attempts + 1, attempt.pk, digest_id)


def mark_sent(claimed: Claim, notification_id: str) -> bool:
    """Record the provider's acceptance: id, time and state in one UPDATE (004, 6.4.3).

    Evidence counts whoever has it: a worker that was thought dead may still report. False
    when the row was no longer waiting for this; the attempt says accepted all the same, and
    the next look at the row finds it there.
    """
    with transaction.atomic():
        marked = _move(
            claimed.delivery_id,
            claimed.digest_id,
            (
                DeliveryStatus.SENDING,
                DeliveryStatus.RECONCILING,
                DeliveryStatus.UNCERTAIN,
                DeliveryStatus.ABANDONED,
            ),
            DeliveryStatus.SENT,
            changes={
                "notification_id": notification_id,
                "notified_at": Now(),
                "error_class": "",
                "detail": "",
            },
        )
        _close(claimed, SendOutcome.ACCEPTED, notification_id=notification_id)
    return marked


def record_failure(claimed: Claim, outcome: SendOutcome, to: DeliveryStatus, failure: Failure) -> bool:
    """Close the attempt with its outcome and move the row; False when another moved it."""
    facts = _facts(failure)
    with transaction.atomic():
        moved = _move(
            claimed.delivery_id,
            claimed.digest_id,
            (DeliveryStatus.SENDING,),
            to,
            attempts=claimed.attempt,
            changes=dict(facts),
        )
        _close(claimed, outcome, **facts)
        if moved and to == DeliveryStatus.PENDING and claimed.digest_id is not None:
            lifecycle.reopen(claimed.digest_id, failure)
    return moved


def recorded(write: Callable[[], T], pause: Callable[[float], object] = prepared.pause) -> T:
    """Do a write that only this process knows of, waiting out a loss of the database.

    Raises the database's error when it stays away: the row then says that an attempt is
    open, which is true, and the next worker reconciles it.
    """
    for seconds in RECORD_PAUSES_SECONDS:
        try:
            return write()
        except (OperationalError, InterfaceError) as error:
            if connection.in_atomic_block:
                raise
            log.warning("delivery_record_repeated", error=type(error).__name__)
            connection.close()
            if prepared.is_disconnect(error):
                pause(seconds)
            else:
                time.sleep(seconds)
    return write()


def doubt(row: Delivery) -> bool:
    """Move a row whose earlier attempt has no outcome to RECONCILING (004, 6.4 and 8.3)."""
    with transaction.atomic():
        moved = _move(
            row.pk,
            row.digest_id,
            (row.status,),
            DeliveryStatus.RECONCILING,
            attempts=row.attempts,
            # Without a time the id alone says "send may have happened".
            changes={"notified_at": None},
        )
        if moved:
            lost = row.attempt_rows.filter(outcome=SendOutcome.STARTED).update(
                outcome=SendOutcome.AMBIGUOUS,
                finished_at=Now(),
                detail="no outcome was recorded: the worker or the database was lost",
            )
            if not lost and not row.attempt_rows.filter(outcome=SendOutcome.ACCEPTED).exists():
                # If it was sent at all, then somewhen between the row's making and now.
                _note(row, SendOutcome.AMBIGUOUS, "marked without evidence of a send", since=row.created_at)
    return moved


def back_fill(row: Delivery, notification_id: str, outcome: SendOutcome, detail: str) -> bool:
    """Mark a row in doubt as sent on evidence, without sending (004, 8.2 first row)."""
    with transaction.atomic():
        moved = _move(
            row.pk,
            row.digest_id,
            (DeliveryStatus.RECONCILING, DeliveryStatus.UNCERTAIN),
            DeliveryStatus.SENT,
            changes={
                "notification_id": notification_id,
                "notified_at": Now(),
                "error_class": "",
                "detail": "",
            },
        )
        if moved:
            _note(row, outcome, detail, notification_id)
    return moved


def note_look(row: Delivery, evidence: Evidence, detail: str) -> None:
    """Write down a look-up that did not find the message."""
    said = "the provider does not have it" if evidence is Evidence.ABSENT else "the provider could not tell"
    _note(row, _NOTED[evidence], clean(f"{said}: {detail}" if detail else said))


def clear_markers(row: Delivery) -> None:
    """Take the markers from a RECONCILING row of which absence is proven (004, 8.2 second row)."""
    with transaction.atomic():
        _move(
            row.pk,
            row.digest_id,
            (DeliveryStatus.RECONCILING,),
            DeliveryStatus.RECONCILING,
            changes=dict(_UNSENT_MARK),
        )


def move(
    row: Delivery,
    to: DeliveryStatus,
    *,
    failure: Failure | None = None,
    clear_markers: bool = False,
    note: tuple[SendOutcome, str] | None = None,
) -> bool:
    """Move the row on from the state it was read in; False when another was faster.

    A row that is given up goes alone, and is told by no digest.
    """
    changes: dict[str, Any] = dict(_facts(failure)) if failure else {}
    if clear_markers:
        changes |= _UNSENT_MARK
    digest_id, held = row.digest_id, []
    with transaction.atomic():
        if digest_id is not None and to in _GIVEN_UP:
            held = lifecycle.hold(Delivery.objects.filter(pk=row.pk))
            digest_id, changes["digest"] = None, None
        moved = _move(row.pk, digest_id, (row.status,), to, attempts=row.attempts, changes=changes)
        if moved and held:
            lifecycle.taken_out(held)
        if moved and note:
            _note(row, *note)
        if moved and digest_id is not None and to == DeliveryStatus.PENDING:
            lifecycle.reopen(digest_id)
    return moved


def release(row: Delivery, repeat_notice: str, detail: str) -> bool:
    """Make an UNCERTAIN row due again on an operator's word, its message marked as a repetition."""
    changes = {**_UNSENT_MARK, "repeat_notice": repeat_notice, "error_class": "", "detail": ""}
    with transaction.atomic():
        moved = _move(
            row.pk,
            row.digest_id,
            (DeliveryStatus.UNCERTAIN,),
            DeliveryStatus.PENDING,
            attempts=row.attempts,
            changes=changes,
        )
        if moved:
            _note(row, SendOutcome.RELEASED, detail)
    return moved


def move_all(job_id: int, before: DeliveryStatus, to: DeliveryStatus) -> int:
    """Move all rows of a job that are in one state to another, out of their digests; return how many.

    What is given up is told by none, and what is due again is told alone, now.
    """
    rows = Delivery.objects.filter(job_id=job_id, status=before)
    return _take_out(rows, status=to, error_class="", detail="")


def leave_digests(job_id: int) -> int:
    """Take what waits of a job that is reviewed anew out of its digests; return how many there were."""
    return _take_out(
        Delivery.objects.filter(job_id=job_id, status=DeliveryStatus.PENDING, digest__isnull=False)
    )


def _take_out(rows: QuerySet[Delivery], **changes: Any) -> int:
    """Update deliveries and take them out of their digests, which tell them no more."""
    with transaction.atomic(savepoint=False):
        held = lifecycle.hold(rows)
        changed = rows.update(digest=None, updated_at=Now(), **changes)
        if held:
            lifecycle.taken_out(held)
    return changed


def confirm(delivery_id: int, detail: str) -> bool:
    """Mark an UNCERTAIN row as sent on an operator's word, which stands as its evidence."""
    with transaction.atomic():
        row = Delivery.objects.get(pk=delivery_id)
        evidence = row.notification_id or f"confirmed:{row.token}"
        moved = _move(
            row.pk,
            row.digest_id,
            (DeliveryStatus.UNCERTAIN,),
            DeliveryStatus.SENT,
            changes={"notification_id": evidence, "notified_at": Now(), "error_class": "", "detail": ""},
        )
        if moved:
            _note(row, SendOutcome.CONFIRMED, clean(detail), evidence)
    return moved


def _move(
    delivery_id: int,
    digest_id: int | None,
    before: Collection[str],
    to: DeliveryStatus,
    *,
    attempts: int | None = None,
    changes: dict[str, Any],
) -> bool:
    rows = Delivery.objects.filter(pk=delivery_id, status__in=list(before))
    if attempts is not None:
        rows = rows.filter(attempts=attempts)
    if digest_id is None:
        return rows.update(status=to, updated_at=Now(), **changes) == 1
    # Held first, so that no other can move, take out or claim a review of it in between.
    carrier_id = lifecycle.hold_carrier(digest_id)
    held = rows.select_for_update(no_key=True).values_list("status", flat=True).first()
    if held is None:
        return False
    together = Q(pk=delivery_id)
    if carrier_id == delivery_id:
        together |= Q(digest=digest_id, status=held)
    # Without a join: a row that changed while this waited for it is judged as it is then.
    return Delivery.objects.filter(together).update(status=to, updated_at=Now(), **changes) > 0


def _attempts(row: Delivery) -> QuerySet[DeliveryAttempt]:
    """Return the attempts that are evidence for a row: its own, or those of its digest's carrier."""
    return DeliveryAttempt.objects.filter(delivery_id=lifecycle.carrier_id(row)).order_by("id")


def _close(claimed: Claim, outcome: SendOutcome, **facts: str) -> None:
    DeliveryAttempt.objects.filter(pk=claimed.attempt_id).update(outcome=outcome, finished_at=Now(), **facts)


def _note(
    row: Delivery,
    outcome: SendOutcome,
    detail: str,
    notification_id: str = "",
    *,
    since: datetime | None = None,
) -> None:
    """Append what was learned without a send to the row's history."""
    DeliveryAttempt.objects.create(
        delivery_id=row.pk,
        **({"started_at": since} if since else {}),
        number=row.attempts,
        outcome=outcome,
        finished_at=Now(),
        notification_id=notification_id,
        detail=detail[:1024],
    )


def _facts(failure: Failure) -> dict[str, str]:
    return {"error_class": str(failure.error_class), "detail": clean(failure.detail)[:1024]}
