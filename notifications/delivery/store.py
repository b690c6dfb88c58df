"""Guarded writes of deliveries and attempts: short commits whose row count is checked.

The only writer of `Delivery.status` and of attempts. The number of attempts is a row's fence: a worker
records the outcome of attempt n only while the row is at attempt n.

The carrier of a digest moves the digest's other rows in the same UPDATE; attempts belong to the carrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from criticizer.db import prepared, reconnect
from criticizer.redaction import clean
from criticizer.resilience.failures import ErrorClass, Failure
from notifications.digests import lifecycle
from notifications.digests.lifecycle import Closing
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Evidence
from notifications.states import UNRESOLVED_DELIVERY, DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

T = TypeVar("T")

# The outcome of a send exists only in this process until it is written, and losing the answer of a mail
# server costs an operator's decision: so minutes, as for every write during a database outage.
RECORD_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0, 30.0)

_SENDABLE = (DeliveryStatus.PENDING, DeliveryStatus.RECONCILING)
_MARKABLE = (
    DeliveryStatus.SENDING,
    DeliveryStatus.RECONCILING,
    DeliveryStatus.UNCERTAIN,
    DeliveryStatus.ABANDONED,
)
# Claim and mark of a message about one review: one statement is one commit.
_CLAIM = f"""
WITH moved AS (
  UPDATE deliveries SET status = 'sending', attempts = attempts + 1, provider = %(provider)s,
         error_class = '', detail = '', updated_at = statement_timestamp()
   WHERE id = %(id)s AND attempts = %(attempts)s AND status IN {prepared.sql_list(_SENDABLE)}
  RETURNING id, attempts)
INSERT INTO delivery_attempts (delivery_id, number) SELECT id, attempts FROM moved RETURNING id"""  # noqa: S608
_MARK = f"""
WITH marked AS (
  UPDATE deliveries SET status = 'sent', notification_id = %(notification_id)s,
         notified_at = statement_timestamp(), error_class = '', detail = '',
         updated_at = statement_timestamp()
   WHERE id = %(id)s AND status IN {prepared.sql_list(_MARKABLE)} RETURNING id),
closed AS (
  UPDATE delivery_attempts SET outcome = 'accepted', finished_at = statement_timestamp(),
         notification_id = %(notification_id)s
   WHERE id = %(attempt)s)
SELECT EXISTS (SELECT FROM marked)"""  # noqa: S608
_OPEN_OUTCOMES = (SendOutcome.STARTED, SendOutcome.ACCEPTED)
_LEAVES_DIGEST = (DeliveryStatus.SUPERSEDED, DeliveryStatus.CANCELLED)
REFUSED = {"status": DeliveryStatus.FAILED, "error_class": ErrorClass.RECIPIENT_REJECTED}
_NO_FAILURE = {"error_class": "", "detail": ""}
_NOT_SENT = {"notified_at": None, "notification_id": ""}
_LOOKUPS = {
    Evidence.ABSENT: (SendOutcome.ABSENT, "the provider does not have it"),
    Evidence.UNKNOWN: (SendOutcome.UNKNOWN, "the provider could not tell"),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to send one delivery once. `attempt` counts from 1 over the row's life."""

    delivery_id: int
    attempt: int
    attempt_id: int
    digest_id: int | None = None  # of a message about several reviews


def read(delivery_id: int) -> Delivery:
    """Return the row as it is now (guarantee G49: read again before every send)."""
    return Delivery.objects.get(pk=delivery_id)


def may_have_happened(row: Delivery) -> bool:
    """Return whether an earlier attempt could have reached the recipient."""
    return (
        row.status in UNRESOLVED_DELIVERY
        or bool(row.notification_id)
        or row.notified_at is not None
        or _attempts(row).filter(outcome__in=_OPEN_OUTCOMES).exists()
    )


def accepted_id(row: Delivery) -> str:
    """Return the provider's id of an earlier accepted attempt, or ""."""
    accepted = _attempts(row).filter(outcome=SendOutcome.ACCEPTED).exclude(notification_id="").last()
    return accepted.notification_id if accepted else ""


def claim(row: Delivery, provider: str) -> Claim | None:
    """Move the row to SENDING and start an attempt; None when another worker was faster.

    A digest that is due is closed in the same commit: its message is fixed before it can be sent.
    """
    # durable: the attempt must be on disk before the provider is called (guarantee G47).
    with transaction.atomic(durable=True):
        if row.digest_id is not None:
            return _claim_digest(row, provider)
    attempt_id: int | None = prepared.value(
        _CLAIM, {"id": row.pk, "attempts": row.attempts, "provider": provider}
    )
    return None if attempt_id is None else Claim(row.pk, row.attempts + 1, attempt_id)


def _claim_digest(row: Delivery, provider: str) -> Claim | None:
    closing = lifecycle.close(row)
    if closing is Closing.TAKEN:
        return None
    digest_id = row.digest_id if closing is Closing.TOGETHER else None
    changes = {"attempts": F("attempts") + 1, "provider": provider, **_NO_FAILURE}
    if not _move(row.pk, digest_id, _SENDABLE, DeliveryStatus.SENDING, changes, at_attempt=row.attempts):
        transaction.set_rollback(True)  # of the digest that was closed for it
        return None
    attempt = DeliveryAttempt.objects.create(delivery_id=row.pk, number=row.attempts + 1)
    return Claim(row.pk, row.attempts + 1, attempt.pk, digest_id)


def mark_sent(claimed: Claim, notification_id: str) -> bool:
    """Record the provider's acceptance: id, time and state in one UPDATE (guarantee G46).

    A late worker's evidence counts too. False when the row was not waiting for it; the attempt is
    accepted all the same, and the next reconciliation of the row finds it.
    """
    if claimed.digest_id is None:
        found = {
            "id": claimed.delivery_id,
            "attempt": claimed.attempt_id,
            "notification_id": notification_id,
        }
        # A statement is a commit of its own; a mark that is refused must not end a caller's transaction.
        with transaction.atomic() if connection.in_atomic_block else nullcontext():
            return bool(prepared.value(_MARK, found))
    with transaction.atomic():
        marked = _mark(claimed.delivery_id, claimed.digest_id, _MARKABLE, notification_id)
        _close(claimed, SendOutcome.ACCEPTED, notification_id=notification_id)
    return marked


def back_fill(
    row: Delivery,
    notification_id: str,
    outcome: SendOutcome,
    detail: str,
    *,
    before: Collection[str] = (DeliveryStatus.RECONCILING, DeliveryStatus.UNCERTAIN),
) -> bool:
    """Mark an uncertain row as sent on evidence, without sending (guarantee G50)."""
    with transaction.atomic():
        marked = _mark(row.pk, row.digest_id, before, notification_id)
        if marked:
            _note(row, outcome, detail, notification_id)
    return marked


def record_failure(claimed: Claim, outcome: SendOutcome, to: DeliveryStatus, failure: Failure) -> bool:
    """Close the attempt with its outcome and move the row; False when another worker moved it."""
    facts = _facts(failure)
    with transaction.atomic():
        sending = (DeliveryStatus.SENDING,)
        moved = _move(claimed.delivery_id, claimed.digest_id, sending, to, facts, at_attempt=claimed.attempt)
        _close(claimed, outcome, **facts)
        if moved and to == DeliveryStatus.PENDING and claimed.digest_id is not None:
            lifecycle.reopen(claimed.digest_id, failure)
    return moved


def recorded(write: Callable[[], T], pause: Callable[[float], object] = reconnect.pause) -> T:
    """Do a write that only this process knows of; wait while the database is away.

    Raises the database's error when it stays away: the attempt is then still open, and the next
    worker reconciles it.
    """
    for seconds in RECORD_PAUSES_SECONDS:
        try:
            return write()
        except (OperationalError, InterfaceError) as error:
            if connection.in_atomic_block:
                raise
            log.warning("delivery_record_repeated", error=type(error).__name__)
            connection.close()
            if reconnect.is_disconnect(error):
                pause(seconds)
            else:
                time.sleep(seconds)
    return write()


def start_reconciling(row: Delivery) -> bool:
    """Move a row whose earlier attempt has no outcome to RECONCILING."""
    with transaction.atomic():
        # Without a time the id alone means "may have been sent".
        changes = {"notified_at": None}
        moved = _move_row(row, (row.status,), DeliveryStatus.RECONCILING, changes)
        if moved:
            lost = row.attempt_rows.filter(outcome=SendOutcome.STARTED).update(
                outcome=SendOutcome.AMBIGUOUS,
                finished_at=Now(),
                detail="no outcome was recorded: the worker or the database was lost",
            )
            if not lost and not row.attempt_rows.filter(outcome=SendOutcome.ACCEPTED).exists():
                # If it was sent at all, then at some time since the row was created.
                _note(row, SendOutcome.AMBIGUOUS, "marked without evidence of a send", since=row.created_at)
    return moved


def record_lookup(row: Delivery, evidence: Evidence, detail: str) -> None:
    """Store a look-up that did not find the message."""
    outcome, text = _LOOKUPS[evidence]
    _note(row, outcome, clean(f"{text}: {detail}" if detail else text))


def clear_markers(row: Delivery) -> None:
    """Remove id and time of a send from a RECONCILING row proven absent (guarantee G53)."""
    with transaction.atomic():
        reconciling = DeliveryStatus.RECONCILING
        _move(row.pk, row.digest_id, (reconciling,), reconciling, _NOT_SENT)


def move(
    row: Delivery,
    to: DeliveryStatus,
    *,
    failure: Failure | None = None,
    clear_markers: bool = False,
    note: tuple[SendOutcome, str] | None = None,
) -> bool:
    """Move the row on from the state it was read in; False when another worker was faster.

    A row that is superseded or cancelled leaves its digest.
    """
    changes: dict[str, Any] = dict(_facts(failure)) if failure else {}
    if clear_markers:
        changes |= _NOT_SENT
    digest_id, locked = row.digest_id, []
    with transaction.atomic():
        if digest_id is not None and to in _LEAVES_DIGEST:
            locked = lifecycle.lock_digests(Delivery.objects.filter(pk=row.pk))
            digest_id, changes["digest"] = None, None
        moved = _move(row.pk, digest_id, (row.status,), to, changes, at_attempt=row.attempts)
        if moved and locked:
            lifecycle.reopen_after_removal(locked)
        if moved and note:
            _note(row, *note)
        if moved and digest_id is not None and to == DeliveryStatus.PENDING:
            lifecycle.reopen(digest_id)
    return moved


def release(row: Delivery, repeat_notice: str, detail: str) -> bool:
    """Make an UNCERTAIN row due again, its message marked as a possible repetition."""
    changes = {**_NOT_SENT, **_NO_FAILURE, "repeat_notice": repeat_notice}
    with transaction.atomic():
        moved = _move_row(row, (DeliveryStatus.UNCERTAIN,), DeliveryStatus.PENDING, changes)
        if moved:
            _note(row, SendOutcome.RELEASED, detail)
    return moved


def move_all(job_id: int, before: DeliveryStatus, to: DeliveryStatus) -> int:
    """Move all rows of a job in one state to another and out of their digests; return how many."""
    rows = Delivery.objects.filter(job_id=job_id, status=before)
    return _leave_digests(rows, status=to, **_NO_FAILURE)


def abandon_refused(job_id: int, detail: str) -> int:
    """Abandon the refused rows of a job and take them out of their digests; return how many."""
    rows = Delivery.objects.filter(job_id=job_id, **REFUSED)
    with transaction.atomic(savepoint=False):
        lifecycle.lock_digests(rows)
        refused = list(rows.select_for_update(no_key=True).order_by("pk"))
        _leave_digests(rows, status=DeliveryStatus.ABANDONED)
        for row in refused:
            _note(row, SendOutcome.ABANDONED, detail)
    return len(refused)


def leave_digests(job_id: int) -> int:
    """Take the pending rows of a job out of their digests; return how many."""
    rows = Delivery.objects.filter(job_id=job_id, status=DeliveryStatus.PENDING, digest__isnull=False)
    return _leave_digests(rows)


def _leave_digests(rows: QuerySet[Delivery], **changes: Any) -> int:
    with transaction.atomic(savepoint=False):
        locked = lifecycle.lock_digests(rows)
        changed = rows.update(digest=None, updated_at=Now(), **changes)
        if locked:
            lifecycle.reopen_after_removal(locked)
    return changed


def _mark(delivery_id: int, digest_id: int | None, before: Collection[str], notification_id: str) -> bool:
    changes = {"notification_id": notification_id, "notified_at": Now(), **_NO_FAILURE}
    return _move(delivery_id, digest_id, before, DeliveryStatus.SENT, changes)


def _move_row(row: Delivery, before: Collection[str], to: DeliveryStatus, changes: dict[str, Any]) -> bool:
    return _move(row.pk, row.digest_id, before, to, changes, at_attempt=row.attempts)


def _move(
    delivery_id: int,
    digest_id: int | None,
    before: Collection[str],
    to: DeliveryStatus,
    changes: Mapping[str, Any],
    *,
    at_attempt: int | None = None,
) -> bool:
    rows = Delivery.objects.filter(pk=delivery_id, status__in=list(before))
    if at_attempt is not None:
        rows = rows.filter(attempts=at_attempt)
    if digest_id is None:
        return rows.update(status=to, updated_at=Now(), **changes) == 1
    # The digest is locked first, so that no other worker moves, removes or claims a row of it.
    carrier_id = lifecycle.lock_carrier(digest_id)
    locked = rows.select_for_update(no_key=True).values_list("status", flat=True).first()
    if locked is None:
        return False
    together = Q(pk=delivery_id)
    if carrier_id == delivery_id:
        together |= Q(digest=digest_id, status=locked)
    # Without a join: a row that changed while this statement waited is judged by its new values.
    return Delivery.objects.filter(together).update(status=to, updated_at=Now(), **changes) > 0


def _attempts(row: Delivery) -> QuerySet[DeliveryAttempt]:
    """Return the attempts for a row: its own, or those of its digest's carrier."""
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
    """Append a row of evidence that is not a send."""
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
