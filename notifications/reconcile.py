"""Deliveries of which nobody knows whether they were sent (specification 004, 8.2 and 8.3).

Nothing here sends. A row is asked about at its provider; what that cannot tell is either
safe to repeat, because the provider deduplicates, or held for an operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

import structlog
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from criticizer import dependencies
from criticizer.failures import (
    ErrorClass,
    Failure,
    Place,
    RetryableFailure,
    UncertainFailure,
    Waiting,
)
from notifications import frozen, ledger
from notifications.circuits import dependency_of
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Evidence, Provider
from notifications.recipients import CHANNELS, split
from notifications.states import DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

_EVIDENCE = (SendOutcome.ACCEPTED, SendOutcome.FOUND, SendOutcome.CONFIRMED)


class Finding(Enum):
    """What became clear about a delivery that may have happened."""

    SENT = auto()  # back-filled
    ABSENT = auto()  # proof that nothing was sent: sending is safe
    REPEATABLE = auto()  # unknown, but the provider deduplicates: sending the same again is safe
    HELD = auto()  # unknown, and repeating could reach the recipient twice


def settle_row(row: Delivery, provider: Provider | None) -> Finding:
    """Find out about a row that may have been sent, and write it down.

    The row ends as SENT, as RECONCILING (ABSENT and REPEATABLE: whoever asked decides what
    is next) or as UNCERTAIN. Raises RetryableFailure when the provider could not be asked or
    another worker moved the row, and Waiting when it must not be asked now; the row stays
    RECONCILING.
    """
    if row.notified_at is not None and not row.notification_id:
        _alert(row, "a time of notification without the provider's id")
    if row.status != DeliveryStatus.RECONCILING or row.notified_at is not None:
        _must(ledger.doubt(row))
        row = ledger.read(row.pk)
    if accepted := ledger.accepted_id(row):
        _must(ledger.back_fill(row, accepted, SendOutcome.FOUND, "an earlier attempt was accepted"))
        return Finding.SENT
    # A changed configuration asks another provider, whose "absent" proves nothing.
    was_elsewhere = provider is not None and row.provider not in {"", provider.name, *CHANNELS}
    if provider is None or was_elsewhere:
        return _hold(row, "the provider that was asked to send it is not configured any more")
    if provider.capabilities.can_look_up:
        message = frozen.thaw(row)
        with dependencies.guarded(dependency_of(row.recipient, provider)):
            answer = provider.look_up(message, row.notification_id)
        if answer.evidence is Evidence.FOUND:
            _must(ledger.back_fill(row, answer.notification_id, SendOutcome.FOUND, "found at the provider"))
            log.info("delivery_back_filled", delivery=row.pk, job=row.job_id)
            return Finding.SENT
        if answer.evidence is Evidence.ABSENT:
            ledger.note_absent(row)
            return Finding.ABSENT
    if provider.capabilities.deduplicates:
        return Finding.REPEATABLE
    return _hold(row, "an attempt has no outcome and the provider cannot be asked")


def settle(job_id: int, providers: Mapping[str, Provider]) -> int:
    """Decide the open rows of a job that has ended, without sending; return how many are left.

    What is absent goes back to PENDING, for the caller to supersede or cancel. Only for jobs
    whose notify stage nobody holds: an open attempt is taken for an abandoned one.
    """
    left = 0
    for row in Delivery.objects.filter(
        job_id=job_id, status__in=[DeliveryStatus.SENDING, DeliveryStatus.RECONCILING]
    ):
        try:
            finding = settle_row(row, providers.get(split(row.recipient)[0]))
            if finding is Finding.ABSENT:
                _must(ledger.move(ledger.read(row.pk), DeliveryStatus.PENDING, clear_markers=True))
            elif finding is Finding.REPEATABLE:
                _hold(ledger.read(row.pk), "the job ended before its attempt was repeated")
        except (Failure, Waiting) as error:
            left += 1
            log.warning("delivery_not_settled", delivery=row.pk, reason=_reason(error))
    return left


@dataclass(slots=True)
class Audit:
    """What an audit of sent rows found. `requeued` holds the ids of the jobs to deliver again."""

    suspicious: int = 0
    back_filled: int = 0
    held: int = 0
    requeued: set[int] = field(default_factory=set)


def audit_sent(
    providers: Mapping[str, Provider],
    *,
    job_id: int | None = None,
    within: timedelta | None = None,
    limit: int = 1000,
) -> Audit:
    """Find rows that say sent without evidence and repair them (004, 8.2 second row; 8.3).

    Evidence is an attempt that the provider accepted, a look-up that found the message or an
    operator's word. A row without any was marked before it was sent: an alert is logged, the
    provider is asked, and what it does not have is cleared and due again. Rows with evidence
    are not asked about: a recipient who deletes a mail must not be sent it anew. `job_id` and
    `within` limit the audit to rows of one job and to rows changed lately.
    """
    audit = Audit()
    rows = _without_evidence()
    if job_id is not None:
        rows = rows.filter(job_id=job_id)
    if within is not None:
        rows = rows.filter(updated_at__gte=Now() - within)
    for row in rows.order_by("id")[:limit]:
        audit.suspicious += 1
        if row.notification_id:
            _alert(row, "no attempt was accepted")
        try:
            finding = settle_row(row, providers.get(split(row.recipient)[0]))
            if finding is Finding.ABSENT:
                _must(ledger.move(ledger.read(row.pk), DeliveryStatus.PENDING, clear_markers=True))
        except (Failure, Waiting) as error:
            # It stays in reconciliation: nothing is sent before it is answered.
            log.warning("delivery_not_settled", delivery=row.pk, reason=_reason(error))
            audit.requeued.add(row.job_id)
            continue
        if finding is Finding.SENT:
            audit.back_filled += 1
        elif finding is Finding.HELD:
            audit.held += 1
        else:
            audit.requeued.add(row.job_id)
    return audit


def _without_evidence() -> QuerySet[Delivery]:
    evidence = DeliveryAttempt.objects.filter(delivery=OuterRef("pk"), outcome__in=_EVIDENCE)
    return Delivery.objects.filter(
        Q(status=DeliveryStatus.SENT) & ~Exists(evidence)
        | Q(
            status__in=[DeliveryStatus.PENDING, DeliveryStatus.SENDING, DeliveryStatus.RECONCILING],
            notified_at__isnull=False,
        )
    )


def _reason(error: Failure | Waiting) -> str:
    return f"waiting for {error.dependency}" if isinstance(error, Waiting) else str(error.error_class)


def _hold(row: Delivery, reason: str) -> Finding:
    failure = UncertainFailure(ErrorClass.DELIVERY_UNCERTAIN, Place.PROVIDER, reason)
    _must(ledger.move(row, DeliveryStatus.UNCERTAIN, failure=failure))
    log.error("delivery_held", delivery=row.pk, job=row.job_id, reason=reason)
    return Finding.HELD


def _alert(row: Delivery, reason: str) -> None:
    # Somebody wrote "sent" before the provider said so: the ordering contract was violated.
    log.error("delivery_evidence_missing", delivery=row.pk, job=row.job_id, reason=reason)


def _must(moved: bool) -> None:
    if not moved:
        raise RetryableFailure(
            ErrorClass.WRITE_CONFLICT, Place.DATABASE, "another worker moved the delivery at the same time"
        )
