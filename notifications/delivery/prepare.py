"""Creates one delivery per recipient, with its frozen message, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from criticizer.db import prepared
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
) -> bool:
    """Create one row per changelist, recipient and review version of a series (guarantee G45).

    Existing rows stay: a sent one stays sent, one that may have been sent keeps its bytes, and any other
    takes the new message. Every row ends up belonging to `job_id`. `digest_minutes`: the digest interval
    of recipients without a row so far who want one; `not_after`: when such a digest must be sent.

    Returns whether there was no row before.
    Raises ValueError when a message carries another token or address than its recipient's.
    """
    rows = [
        _row(job_id, changelist_id, review_version, series, recipient, message)
        for recipient, message in messages.items()
    ]
    # A row and its digest are one commit. Without digests, rows that are all new take one statement.
    with transaction.atomic() if digest_minutes else nullcontext():
        is_new = _insert(rows) == len(rows)
        if not is_new:
            _refresh(rows, job_id)
        if digest_minutes:
            lifecycle.join(job_id, digest_minutes, not_after)
    return is_new


_INSERT = """
INSERT INTO deliveries (job_id, changelist_id, review_version, series, provider, recipient, token, subject,
                        payload, payload_sha256)
SELECT %(job)s, %(changelist)s, %(version)s, %(series)s, '', made.*
  FROM unnest(%(recipients)s::text[], %(tokens)s::uuid[], %(subjects)s::text[], %(payloads)s::jsonb[],
              %(hashes)s::text[]) AS made
ON CONFLICT DO NOTHING RETURNING id"""


def _insert(rows: Sequence[Delivery]) -> int:
    """Insert rows of one job that do not exist yet; return how many."""
    if not rows:
        return 0
    made = {
        "job": rows[0].job_id,
        "changelist": rows[0].changelist_id,
        "version": rows[0].review_version,
        "series": rows[0].series,
        "recipients": [row.recipient for row in rows],
        "tokens": [row.token for row in rows],
        "subjects": [row.subject for row in rows],
        "payloads": [Jsonb(row.payload) for row in rows],
        "hashes": [row.payload_sha256 for row in rows],
    }
    return len(prepared.rows(_INSERT, made))


def _refresh(rows: Sequence[Delivery], job_id: int) -> None:
    """Take over rows of an earlier run, with the new message where nothing can have been sent."""
    attempted = DeliveryAttempt.objects.filter(delivery=OuterRef("pk"), outcome__in=MAY_HAVE_ARRIVED)
    existing = Delivery.objects.filter(
        changelist_id=rows[0].changelist_id, review_version=rows[0].review_version, series=rows[0].series
    )
    with transaction.atomic(savepoint=False):
        existing.exclude(job_id=job_id).filter(recipient__in=[row.recipient for row in rows]).update(
            job_id=job_id, updated_at=Now()
        )
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
