"""States of deliveries, each with what moves a row there."""

from __future__ import annotations

from django.db import models


class DeliveryStatus(models.TextChoices):
    PENDING = "pending", "Pending"  # made with the notify stage; requeued after proof of absence
    SENDING = "sending", "Sending"  # an attempt is started; without an outcome: may have happened
    SENT = "sent", "Sent"  # provider accepted; notification_id and notified_at set in one write
    RECONCILING = "reconciling", "Reconciling"  # asking the provider before anything else
    UNCERTAIN = "uncertain", "Uncertain"  # may have been sent, nobody can say: an operator decides
    FAILED = "failed", "Failed"  # permanently refused
    SUPERSEDED = "superseded", "Superseded"  # unsent: a newer version, or its recipient was edited away
    CANCELLED = "cancelled", "Cancelled"  # its job was cancelled or timed out before it was sent
    ABANDONED = "abandoned", "Abandoned"  # an operator gave it up; whether it arrived nobody knows


_D = DeliveryStatus
UNSENT_DELIVERY = (_D.PENDING, _D.SENDING, _D.RECONCILING)
DOUBTFUL_DELIVERY = (_D.SENDING, _D.RECONCILING)  # an attempt of it may be out
GIVEN_UP_DELIVERY = (_D.SUPERSEDED, _D.CANCELLED, _D.ABANDONED)
# Nobody is at it any more: the partial index `deliveries_open` leaves these out.
SETTLED_DELIVERY = (_D.SENT, _D.FAILED, *GIVEN_UP_DELIVERY)
NOT_REQUIRED_DELIVERY = (_D.ABANDONED, _D.SUPERSEDED)  # its job succeeds without it
DELIVERY_TRANSITIONS: tuple[tuple[DeliveryStatus, DeliveryStatus], ...] = (
    (_D.PENDING, _D.SENDING),
    (_D.SENDING, _D.SENT),
    (_D.SENDING, _D.PENDING),  # certain that nothing was sent
    (_D.SENDING, _D.FAILED),
    (_D.SENDING, _D.RECONCILING),
    (_D.SENDING, _D.UNCERTAIN),
    (_D.RECONCILING, _D.SENT),  # found: back-filled without resending
    (_D.RECONCILING, _D.SENDING),  # absent, or the provider deduplicates: resent
    (_D.RECONCILING, _D.PENDING),
    (_D.RECONCILING, _D.UNCERTAIN),
    (_D.SENT, _D.RECONCILING),  # marked without evidence: 004, 8.2 second row
    (_D.UNCERTAIN, _D.SENT),  # operator confirms; evidence arrives late
    (_D.UNCERTAIN, _D.PENDING),  # operator resends and accepts a possible duplicate
    (_D.UNCERTAIN, _D.ABANDONED),  # operator gives it up: the job succeeds without it
    (_D.ABANDONED, _D.SENT),  # evidence arrives late
    (_D.FAILED, _D.PENDING),  # replay
    (_D.CANCELLED, _D.PENDING),  # a late result was accepted
    (_D.PENDING, _D.FAILED),
    (_D.PENDING, _D.RECONCILING),  # carries a marker it should not have: asked about before any send
    (_D.PENDING, _D.SUPERSEDED),
    (_D.PENDING, _D.CANCELLED),
    (_D.FAILED, _D.SUPERSEDED),
    (_D.FAILED, _D.CANCELLED),
)


class SendOutcome(models.TextChoices):
    STARTED = "started", "Started"  # written before the effect
    ACCEPTED = "accepted", "Accepted"
    NOT_SENT = "not_sent", "Not sent"  # transient: repeated
    REJECTED = "rejected", "Rejected"  # permanent
    AMBIGUOUS = "ambiguous", "Ambiguous"
    FOUND = "found", "Found by look-up"
    ABSENT = "absent", "Absent by look-up"
    UNKNOWN = "unknown", "Look-up could not tell"
    CONFIRMED = "confirmed", "Confirmed by an operator"
    RELEASED = "released", "Released for resending by an operator"
    ABANDONED = "abandoned", "Abandoned by an operator"


EVIDENCE = (SendOutcome.ACCEPTED, SendOutcome.FOUND, SendOutcome.CONFIRMED)  # of a message that arrived
# Of an attempt that may have reached the recipient.
DOUBTFUL = (SendOutcome.STARTED, SendOutcome.ACCEPTED, SendOutcome.AMBIGUOUS)


class DeliveryState(models.TextChoices):
    """What a mail service reported after it took a mail; no report changes a DeliveryStatus."""

    DEFERRED = "deferred", "Deferred"  # the recipient's server did not take it yet
    DELIVERED = "delivered", "Delivered"  # the recipient's server took it
    BOUNCED = "bounced", "Bounced"
    COMPLAINED = "complained", "Reported as spam"
