"""States of deliveries, each with the cause of the transition into it."""

from __future__ import annotations

from django.db import models


class DeliveryStatus(models.TextChoices):
    PENDING = "pending", "Pending"  # created by the notify stage; requeued after proof of absence
    SENDING = "sending", "Sending"  # an attempt is started; without an outcome it may have arrived
    SENT = "sent", "Sent"  # provider accepted; notification_id and notified_at set in one write
    RECONCILING = "reconciling", "Reconciling"  # looked up at the provider before anything else
    UNCERTAIN = "uncertain", "Uncertain"  # may have been sent: an operator decides
    FAILED = "failed", "Failed"  # permanently refused
    SUPERSEDED = "superseded", "Superseded"  # unsent: a newer version, or its recipient was edited away
    CANCELLED = "cancelled", "Cancelled"  # its job was cancelled or timed out before it was sent
    ABANDONED = "abandoned", "Abandoned"  # by an operator: it is uncertain, or its recipient was refused


UNSENT_DELIVERY = (DeliveryStatus.PENDING, DeliveryStatus.SENDING, DeliveryStatus.RECONCILING)
UNRESOLVED_DELIVERY = (DeliveryStatus.SENDING, DeliveryStatus.RECONCILING)  # an attempt may have arrived
WITHDRAWN_DELIVERY = (DeliveryStatus.SUPERSEDED, DeliveryStatus.CANCELLED, DeliveryStatus.ABANDONED)
# Nothing works on these: the partial index `deliveries_open` leaves them out.
SETTLED_DELIVERY = (DeliveryStatus.SENT, DeliveryStatus.FAILED, *WITHDRAWN_DELIVERY)
NOT_REQUIRED_DELIVERY = (DeliveryStatus.ABANDONED, DeliveryStatus.SUPERSEDED)  # the job succeeds without it
DELIVERY_TRANSITIONS: tuple[tuple[DeliveryStatus, DeliveryStatus], ...] = (
    (DeliveryStatus.PENDING, DeliveryStatus.SENDING),
    (DeliveryStatus.SENDING, DeliveryStatus.SENT),
    (DeliveryStatus.SENDING, DeliveryStatus.PENDING),  # certain that nothing was sent
    (DeliveryStatus.SENDING, DeliveryStatus.FAILED),
    (DeliveryStatus.SENDING, DeliveryStatus.RECONCILING),
    (DeliveryStatus.SENDING, DeliveryStatus.UNCERTAIN),
    (DeliveryStatus.RECONCILING, DeliveryStatus.SENT),  # found: back-filled without resending
    (DeliveryStatus.RECONCILING, DeliveryStatus.SENDING),  # absent, or the provider deduplicates: resent
    (DeliveryStatus.RECONCILING, DeliveryStatus.PENDING),
    (DeliveryStatus.RECONCILING, DeliveryStatus.UNCERTAIN),
    (DeliveryStatus.SENT, DeliveryStatus.RECONCILING),  # marked without evidence
    (DeliveryStatus.UNCERTAIN, DeliveryStatus.SENT),  # operator confirms; evidence arrives late
    (DeliveryStatus.UNCERTAIN, DeliveryStatus.PENDING),  # operator resends and accepts a possible duplicate
    (DeliveryStatus.UNCERTAIN, DeliveryStatus.ABANDONED),  # operator abandons it
    (DeliveryStatus.ABANDONED, DeliveryStatus.SENT),  # evidence arrives late
    (DeliveryStatus.FAILED, DeliveryStatus.PENDING),  # replay
    (DeliveryStatus.FAILED, DeliveryStatus.ABANDONED),  # operator gives up a refused recipient
    (DeliveryStatus.CANCELLED, DeliveryStatus.PENDING),  # a late result was accepted
    (DeliveryStatus.PENDING, DeliveryStatus.FAILED),
    (DeliveryStatus.PENDING, DeliveryStatus.RECONCILING),  # has the mark of a send: looked up first
    (DeliveryStatus.PENDING, DeliveryStatus.SUPERSEDED),
    (DeliveryStatus.PENDING, DeliveryStatus.CANCELLED),
    (DeliveryStatus.FAILED, DeliveryStatus.SUPERSEDED),
    (DeliveryStatus.FAILED, DeliveryStatus.CANCELLED),
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
MAY_HAVE_ARRIVED = (SendOutcome.STARTED, SendOutcome.ACCEPTED, SendOutcome.AMBIGUOUS)


class DeliveryState(models.TextChoices):
    """A mail service's later report about an accepted mail; it never changes a DeliveryStatus."""

    DEFERRED = "deferred", "Deferred"  # the recipient's server has not accepted it yet
    DELIVERED = "delivered", "Delivered"  # the recipient's server accepted it
    BOUNCED = "bounced", "Bounced"
    COMPLAINED = "complained", "Reported as spam"
