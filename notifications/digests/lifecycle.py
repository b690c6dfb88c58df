"""The life of a digest: several reviews in one message (guarantees G55, G56).

    join         a new delivery waits with the recipient's others until the first of them is due
    row_for_job  the first job that comes when the digest is due closes and carries it
    close        in the claim: the deliveries fixed, their message composed and frozen
    leave        a delivery is sent alone after all

Every delivery keeps its own frozen message, so it can be sent alone at any time. The carrier of a closed
digest goes through the send protocol, and `delivery.store` moves the others with it. A digest is opened
again once it is proven that nothing arrived. Its bytes stay while it is uncertain and when an operator
has it resent, unless a review is removed from it. Code that changes deliveries of a digest locks the
digest's row first. The only writer of `Digest`; writes no delivery status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

import structlog
from django.db import connection
from django.db.models import DateTimeField, Exists, F, Func, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Least, Now

from criticizer.db import prepared
from criticizer.queue import advisory_locks, outbox
from criticizer.queue.advisory_locks import Lock
from criticizer.resilience.failures import DependencyUnavailable, Failure, PermanentFailure
from criticizer.resilience.retry import BACKOFF
from notifications.delivery import snapshot
from notifications.digests import message as digest_message
from notifications.models import Delivery, DeliveryAttempt, Digest
from notifications.ports import jobs
from notifications.providers.base import Message
from notifications.states import UNSENT_DELIVERY, DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

MAX_REVIEWS = 50
# Time before a review's deadline for sending its mail, with retries of an unavailable server.
MARGIN_SECONDS = 180.0
FOLLOW_SECONDS = 3.0  # delay of the other jobs after the first, and their interval while it is sent
# A carrier unchanged for so long has lost its worker or its job. As in the audit.
STALE_SECONDS = 300.0

_OPEN: dict[str, Any] = {
    "closed_at": None,
    "carrier": None,
    "token": None,
    "subject": "",
    "payload": {},
    "payload_sha256": "",
}
# Not the time of the transaction, which may have waited for the lock.
_CLOCK: Func = Func(function="clock_timestamp", output_field=DateTimeField())


def join(job_id: int, minutes: Mapping[str, int], not_after: datetime | None) -> None:
    """Add a job's new deliveries to digests, in the transaction that created them.

    `minutes`: the interval each recipient wants; `not_after`: when the job's messages must be sent. A
    delivery that would be due already stays out and is sent at once.
    """
    assert connection.in_atomic_block
    for recipient in sorted(minutes):  # in one order, so that two transactions never deadlock
        row = Delivery.objects.filter(
            job_id=job_id,
            recipient=recipient,
            status=DeliveryStatus.PENDING,
            attempts=0,
            digest__isnull=True,
        )
        row_id = row.values_list("id", flat=True).first()
        advisory_locks.take(Lock.DIGEST_JOIN, recipient)
        due_at = _due_at(minutes[recipient], not_after)
        if row_id is not None and due_at is not None:
            row.update(digest=_open_digest(recipient, due_at), updated_at=Now())


def _due_at(minutes: int, not_after: datetime | None) -> datetime | None:
    """Return when a digest of that interval is due, None when that is past."""
    now: datetime = prepared.value("SELECT clock_timestamp()")
    due_at = now + timedelta(seconds=outbox.scaled(60.0 * minutes))
    if not_after is not None:
        due_at = min(due_at, not_after)
    return due_at if minutes > 0 and due_at > now else None


def _open_digest(recipient: str, due_at: datetime) -> int:
    """Return the recipient's open digest, due no later than `due_at`; create it if needed."""
    opened = Digest.objects.filter(recipient=recipient, closed_at__isnull=True)
    # A digest that was tried and waits for its next attempt takes no more reviews.
    tried = Delivery.objects.filter(digest=OuterRef("pk"), attempts__gt=0)
    open_yet = opened.select_for_update(no_key=True).filter(~Exists(tried), due_at__gt=_CLOCK)
    newest = open_yet.order_by("-id").first()
    if newest is not None and pending_in(newest.pk).count() < MAX_REVIEWS:
        opened.filter(pk=newest.pk).update(due_at=Least(F("due_at"), due_at))
        return newest.pk
    # Remove digests whose deliveries have all left.
    opened.exclude(Exists(Delivery.objects.filter(digest=OuterRef("pk")))).delete()
    return Digest.objects.create(recipient=recipient, due_at=due_at).pk


def pending_in(digest_id: int) -> QuerySet[Delivery]:
    """Return the pending deliveries of a digest, in order."""
    return Delivery.objects.filter(digest=digest_id, status=DeliveryStatus.PENDING).order_by("id")


def others_due(job_id: int) -> dict[int, list[str]]:
    """Return the other jobs whose deliveries a job would send together with its own now.

    The values are the recipients of these deliveries.
    """
    due = Digest.objects.filter(closed_at__isnull=True, due_at__lte=_CLOCK, deliveries__job=job_id)
    found: dict[int, list[str]] = {}
    rows = Delivery.objects.filter(digest__in=due, status=DeliveryStatus.PENDING).exclude(job=job_id)
    for other, recipient in rows.order_by("id").values_list("job", "recipient"):
        found.setdefault(other, []).append(recipient)
    return found


def leave_due(job_id: int, recipients: Collection[str]) -> None:
    """Take a job's pending deliveries out of open digests, for its own stage to settle."""
    pending = Delivery.objects.filter(job=job_id, recipient__in=recipients, status=DeliveryStatus.PENDING)
    pending.filter(digest__closed_at__isnull=True).update(digest=None, updated_at=Now())


def latest(deadline_at: datetime) -> datetime:
    """Return the latest time to send a review with that deadline."""
    return deadline_at - timedelta(seconds=outbox.scaled(MARGIN_SECONDS))


def row_for_job(row: Delivery) -> Delivery:
    """Return the row that the job of a delivery works on: its own, or the carrier of its digest.

    Both are re-read in one statement: they change together. Raises DependencyUnavailable, which uses no
    attempt, while the digest is not due or another job is sending it.
    """
    now, read_at, first_id = _reread(row.pk)
    digest = now.digest
    if digest is None or now.status not in UNSENT_DELIVERY:
        return now
    if digest.closed_at is None:
        seconds = (digest.due_at - read_at).total_seconds()
        if seconds <= 0:
            return now
        if first_id != now.pk:
            seconds += outbox.scaled(FOLLOW_SECONDS)
        raise DependencyUnavailable(
            "", seconds, f"It waits for a digest, which is due at {digest.due_at:%H:%M:%S %Z}."
        )
    carrier = digest.carrier
    if carrier is not None and carrier.pk == now.pk:
        return now
    if carrier is None and now.status != DeliveryStatus.PENDING and _adopt(digest, now):
        return Delivery.objects.get(pk=now.pk)
    if carrier is None or carrier.digest_id != digest.pk or carrier.status != now.status:
        # The carrier is gone, withdrawn or refused: the others are sent alone.
        if leave(now):
            return Delivery.objects.get(pk=now.pk)
    elif (read_at - carrier.updated_at).total_seconds() > outbox.scaled(STALE_SECONDS):
        return carrier
    raise digest_in_progress()


def _adopt(digest: Digest, row: Delivery) -> bool:
    """Make an uncertain row the carrier of its closed digest, whose carrier is deleted."""
    gone = Digest.objects.filter(pk=digest.pk, closed_at__isnull=False, carrier__isnull=True)
    return gone.update(carrier=row.pk) == 1


def digest_in_progress() -> DependencyUnavailable:
    """Return the exception for a job whose digest another job is sending."""
    return DependencyUnavailable(
        "", outbox.scaled(FOLLOW_SECONDS), "Another review is sending the digest it belongs to."
    )


@contextmanager
def exclusive_lookup(row: Delivery) -> Iterator[None]:
    """Let one job at a time reconcile a digest; raise DependencyUnavailable for the others.

    The jobs of all its reviews come at once, and simultaneous look-ups prove no more than one.
    """
    with advisory_locks.held(Lock.DIGEST_ASK, carrier_id(row)) as is_mine:
        if not is_mine:
            raise digest_in_progress()
        now = Delivery.objects.get(pk=row.pk)
        if (now.status, now.attempts) != (row.status, row.attempts):
            raise digest_in_progress()
        yield


def _reread(delivery_id: int) -> tuple[Delivery, datetime, int | None]:
    """Return a delivery with its digest, the time, and the digest's first pending id."""
    waiting = Delivery.objects.filter(digest=OuterRef("digest"), status=DeliveryStatus.PENDING)
    row = (
        Delivery.objects.select_related("digest__carrier")
        .annotate(read_at=Now(), first_id=Subquery(waiting.order_by("id").values("id")[:1]))
        .get(pk=delivery_id)
    )
    return row, row.read_at, row.first_id


def carrier_id(row: Delivery) -> int:
    """Return the id of the row with the attempts for `row`: its own or the carrier's."""
    return row.pk if row.digest is None else row.digest.carrier_id or row.pk


def carrier_of(row: Delivery) -> Delivery:
    """Return the row with the attempts for `row`: itself or its digest's carrier."""
    found = carrier_id(row)
    return row if found == row.pk else Delivery.objects.get(pk=found)


def same_message(row: Delivery) -> QuerySet[Delivery]:
    """Return the deliveries in one message with `row`, itself included."""
    if row.digest_id is None:
        return Delivery.objects.filter(pk=row.pk)
    moved = Q(digest=row.digest_id, status=row.status, digest__closed_at__isnull=False)
    return Delivery.objects.filter(Q(pk=row.pk) | moved)


def carriers(rows: QuerySet[Delivery]) -> QuerySet[Delivery]:
    """Exclude rows that another one carries: they follow it."""
    return rows.filter(Q(digest__isnull=True) | Q(digest__carrier__isnull=True) | Q(digest__carrier=F("pk")))


def evidence_key() -> Coalesce:
    """Return the id of the row with the attempts, for a subquery."""
    return Coalesce(OuterRef("digest__carrier"), OuterRef("pk"))


class Closing(Enum):
    """The result of closing a delivery's digest."""

    TOGETHER = auto()  # the delivery carries the digest, which has its message
    ALONE = auto()  # nothing else is left in the digest: sent with its own message
    TAKEN = auto()  # another delivery carries the digest


def close(row: Delivery) -> Closing:
    """Fix the reviews of a due digest and freeze its message; inside the claim of `row`.

    Left out are superseded versions, reviews that ended otherwise, and deliveries whose own message is
    damaged: their jobs send them alone or report the damage.
    """
    digest = Digest.objects.select_for_update(no_key=True, of=("self",)).filter(deliveries=row.pk).first()
    if digest is None:
        return Closing.ALONE
    if digest.closed_at is not None:
        return Closing.TOGETHER if digest.carrier_id == row.pk else Closing.TAKEN
    members = list(pending_in(digest.pk).select_for_update(no_key=True))
    if row.pk not in {member.pk for member in members}:
        return Closing.TAKEN
    messages = _messages(members, asking=row)
    left_out = [member.pk for member in members if member.pk not in messages]
    Delivery.objects.filter(pk__in=left_out).update(digest=None)
    if len(messages) < 2 or row.pk not in messages:
        Delivery.objects.filter(pk=row.pk).update(digest=None)
        if len(messages) < 2:
            digest.delete()
        return Closing.ALONE
    message = _composed(messages)
    payload, sha256 = snapshot.freeze(message)
    Digest.objects.filter(pk=digest.pk).update(
        closed_at=Now(),
        carrier=row.pk,
        token=message.token,
        subject=message.subject,
        payload=payload,
        payload_sha256=sha256,
    )
    log.info("digest_closed", digest=digest.pk, delivery=row.pk, reviews=len(messages))
    return Closing.TOGETHER


def preview(row: Delivery) -> Message | None:
    """Return the message that a delivery's open digest would have now, None without one."""
    if row.waits_until is None or row.digest_id is None:
        return None
    messages = _messages(list(pending_in(row.digest_id)), asking=row)
    return _composed(messages) if len(messages) > 1 and row.pk in messages else None


def _composed(messages: dict[int, Message]) -> Message:
    own = list(messages.values())
    return digest_message.compose(own, snapshot.token_of_all(message.token for message in own))


def _messages(members: list[Delivery], *, asking: Delivery) -> dict[int, Message]:
    """Return delivery id -> message of those still to be sent; the caller has checked `asking`."""
    port = jobs()
    wanted = [one for one in members if one.pk == asking.pk or not port.why_no_resend(one.job_id)]
    return _readable(_newest(wanted))


def _newest(members: list[Delivery]) -> list[Delivery]:
    newest: dict[tuple[str, str], Delivery] = {}
    for member in members:
        known = newest.get((member.changelist_id, member.series))
        if known is None or member.review_version > known.review_version:
            newest[member.changelist_id, member.series] = member
    return [member for member in members if newest[member.changelist_id, member.series] is member]


def _readable(members: list[Delivery]) -> dict[int, Message]:
    found = {}
    for member in members:
        try:
            found[member.pk] = snapshot.thaw_own(member)
        except PermanentFailure:
            log.error("digest_message_damaged", delivery=member.pk, job=member.job_id)
    return found


def lock_digests(rows: QuerySet[Delivery]) -> list[int]:
    """Lock the digests of deliveries in one order and return their ids; inside a transaction."""
    named = rows.filter(digest__isnull=False).values("digest")
    digests = Digest.objects.select_for_update(no_key=True).filter(pk__in=named).order_by("pk")
    return list(digests.values_list("pk", flat=True))


def lock_carrier(digest_id: int) -> int | None:
    """Lock a digest and return the id of its carrier; inside a transaction."""
    held = Digest.objects.select_for_update(no_key=True).filter(pk=digest_id)
    return held.values_list("carrier_id", flat=True).first()


def reopen(digest_id: int, failure: Failure | None = None) -> None:
    """Open a digest of which certainly nothing arrived: the next job closes it again.

    After a failed attempt it is due when a single delivery would be: all its jobs together try it as
    often as one job would.
    """
    opened = Digest.objects.filter(pk=digest_id)
    if failure is not None:
        failed = (SendOutcome.NOT_SENT, SendOutcome.REJECTED)
        tries = DeliveryAttempt.objects.filter(delivery__digest=digest_id, outcome__in=failed).count()
        seconds = outbox.scaled(BACKOFF.delay(max(tries, 1), failure.retry_after_seconds))
        opened.update(due_at=_CLOCK + timedelta(seconds=seconds))
    opened.update(**_OPEN)


def reopen_after_removal(digest_ids: Collection[int]) -> None:
    """Open digests that wait closed to be resent, after a review was removed from them."""
    waiting = Delivery.objects.filter(digest=OuterRef("pk"), status=DeliveryStatus.PENDING)
    Digest.objects.filter(Exists(waiting), pk__in=digest_ids, closed_at__isnull=False).update(**_OPEN)


def leave(row: Delivery) -> bool:
    """Take a pending delivery out of its digest; False when it is not pending there."""
    left = Delivery.objects.filter(pk=row.pk, status=DeliveryStatus.PENDING, digest=row.digest_id)
    return left.update(digest=None, updated_at=Now()) == 1
