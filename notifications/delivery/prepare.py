"""Creates one delivery per recipient, with its frozen message, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from notifications.delivery import snapshot
from notifications.delivery.snapshot import token_for
from notifications.digests import lifecycle
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Message
from notifications.recipients import split
from notifications.states import MAY_HAVE_ARRIVED, UNSENT_DELIVERY, DeliveryStatus


def create_deliveries(
    job_id: int,
    changelist_id: str,
    review_version: int,
    messages: Mapping[str, Message],
    *,
    series: str = "",
    digest_minutes: Mapping[str, int] | None = None,
    not_after: datetime | None = None,
) -> None:
    """Create one row per changelist, recipient and review version of a series (guarantee G45).

    Existing rows stay: a sent one stays sent, one that may have been sent keeps its bytes, and any other
    takes the new message. Every row ends up belonging to `job_id`. `digest_minutes`: the digest interval
    of recipients without a row so far who want one; `not_after`: when such a digest must be sent.

    Raises ValueError when a message carries another token or address than its recipient's.
    """
    rows = [
        _row(job_id, changelist_id, review_version, series, recipient, message)
        for recipient, message in messages.items()
    ]
    attempted = DeliveryAttempt.objects.filter(delivery=OuterRef("pk"), outcome__in=MAY_HAVE_ARRIVED)
    with transaction.atomic():
        Delivery.objects.bulk_create(rows, ignore_conflicts=True)
        existing = Delivery.objects.filter(
            changelist_id=changelist_id, review_version=review_version, series=series
        )
        existing.exclude(job_id=job_id).filter(recipient__in=messages).update(job_id=job_id, updated_at=Now())
        for row in rows:
            # Differs only where an earlier run left a row and the review has been made again since. The same
            # bytes come back where their lifetime had ended.
            made_again = (
                Q(status=DeliveryStatus.PENDING) & ~Exists(attempted) & ~Q(payload_sha256=row.payload_sha256)
            )
            emptied = Q(status__in=UNSENT_DELIVERY, payload={}, payload_sha256=row.payload_sha256)
            existing.filter(made_again | emptied, recipient=row.recipient).update(
                subject=row.subject,
                payload=row.payload,
                payload_sha256=row.payload_sha256,
                updated_at=Now(),
            )
        if digest_minutes:
            lifecycle.join(job_id, digest_minutes, not_after)


def _row(
    job_id: int, changelist_id: str, review_version: int, series: str, recipient: str, message: Message
) -> Delivery:
    token = token_for(changelist_id, recipient, review_version, series)
    if message.token != token or message.address != split(recipient)[1]:
        raise ValueError("a message must carry the token and the address of its recipient")
    payload, digest = snapshot.freeze(message)
    return Delivery(
        job_id=job_id,
        changelist_id=changelist_id,
        recipient=recipient,
        review_version=review_version,
        series=series,
        token=token,
        subject=message.subject,
        payload=payload,
        payload_sha256=digest,
    )
