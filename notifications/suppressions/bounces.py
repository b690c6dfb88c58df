"""Records mail services' later reports on deliveries, and suppresses addresses.

A report never changes a delivery's status: it was sent, even if it bounced later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from criticizer.redaction import clean
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.models.suppressions import Suppression
from notifications.recipients import split
from notifications.states import DeliveryState

log = structlog.get_logger(__name__)

# In order: a later report never replaces a heavier one, such as a bounce.
_WEIGHT = (DeliveryState.DEFERRED, DeliveryState.DELIVERED, DeliveryState.BOUNCED, DeliveryState.COMPLAINED)


@dataclass(frozen=True, slots=True)
class MailReport:
    """One event of a mail service. `reason` is set where the address must be suppressed."""

    provider: str
    event_id: str
    state: DeliveryState
    notification_id: str
    token: UUID | None
    address: str
    reason: Suppression.Reason | None = None
    detail: str = ""


def record(report: MailReport) -> None:
    """Record a report on its delivery, or all of a digest; suppress the address if it says so.

    Idempotent. A report of a mail that is not ours changes nothing: the account may be shared.
    """
    row = _delivery_of(report)
    if row is None:
        log.info("mail_event_not_ours", provider=report.provider, state=report.state)
        return
    with transaction.atomic():
        weaker = ["", *_WEIGHT[: _WEIGHT.index(report.state)]]
        lifecycle.same_message(row).filter(delivery_state__in=weaker).update(
            delivery_state=report.state, delivery_state_at=Now()
        )
        is_new = report.reason is not None and _suppress(row, report, report.reason)
    log.info("mail_event", delivery=row.pk, state=report.state, suppressed=is_new)


def _delivery_of(report: MailReport) -> Delivery | None:
    """Return the delivery that a report is about: by our token, else by the service's id."""
    known = Q(token=report.token) | Q(digest__token=report.token) if report.token else Q()
    if report.notification_id:
        known |= Q(notification_id=report.notification_id)
    if not known:
        return None
    for row in Delivery.objects.filter(known, provider=report.provider).order_by("id")[:2]:
        if not report.address or split(row.recipient)[1].lower() == report.address.lower():
            return row
    return None


def _suppress(row: Delivery, report: MailReport, reason: Suppression.Reason) -> bool:
    """Suppress the address; False when it is suppressed or this event was handled before."""
    try:
        with transaction.atomic():
            Suppression.objects.create(
                address=split(row.recipient)[1].lower(),
                reason=reason,
                provider=report.provider,
                event_id=report.event_id[:255],
                detail=clean(report.detail)[:500],
            )
    except IntegrityError:
        return False
    return True


def refuse_suppressed(recipient: str) -> None:
    """Raise PermanentFailure RECIPIENT_REJECTED for a suppressed mail recipient."""
    if (found := _in_force(recipient).first()) is not None:
        raise PermanentFailure(
            ErrorClass.RECIPIENT_REJECTED,
            Component.PROVIDER,
            f"no mail is sent to this address since {found.created_at:%Y-%m-%d}: "
            f"{found.get_reason_display().lower()}. Lift the suppression once that is fixed, then replay.",
            context={"suppression": found.pk},
        )


def suppressed_since(recipient: str) -> datetime | None:
    """Return since when no mail is sent to a recipient, None where mail is sent."""
    return _in_force(recipient).values_list("created_at", flat=True).first()


def _in_force(recipient: str) -> QuerySet[Suppression]:
    channel, address = split(recipient)
    found = Suppression.objects.filter(address=address.lower(), lifted_at__isnull=True)
    return found if channel == "mail" else found.none()


def lift(suppression_id: int, *, actor: str, reason: str) -> bool:
    """Lift a suppression; False when it was lifted before. Raises ValueError without a reason."""
    if not reason.strip():
        raise ValueError("A reason is required. It is saved with the address.")
    lifted = Suppression.objects.filter(pk=suppression_id, lifted_at__isnull=True).update(
        lifted_at=Now(), lifted_by=actor, lift_reason=clean(reason.strip())[:500]
    )
    log.info("suppression_lifted", suppression=suppression_id, actor=actor, done=lifted == 1)
    return lifted == 1
