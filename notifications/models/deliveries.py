"""Deliveries and their attempts. `delivery.store` is the only writer of a status.

`delivery.prepare` creates rows, `digests.lifecycle` assigns digests, `suppressions.bounces` writes
`delivery_state`.
"""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import fsm
from criticizer.mail import MAILDIR
from notifications.states import (
    DELIVERY_TRANSITIONS,
    SETTLED_DELIVERY,
    DeliveryState,
    DeliveryStatus,
    SendOutcome,
)


class Delivery(models.Model):
    """The one message to a recipient about a version of a changelist (guarantee G45)."""

    job = models.ForeignKey("reviews.ReviewJob", on_delete=models.CASCADE, related_name="deliveries")
    changelist_id = models.CharField(max_length=128)
    recipient = models.CharField(max_length=512)  # channel-qualified: mail:ann@example.com
    review_version = models.IntegerField()
    series = models.CharField(max_length=32, blank=True, db_default="")  # of the job
    status = models.CharField(
        max_length=12, choices=DeliveryStatus.choices, db_default=DeliveryStatus.PENDING
    )
    token = models.UUIDField(unique=True)  # UUIDv5 of the tuple: the provider's idempotency key
    provider = models.CharField(max_length=32)
    subject = models.CharField(max_length=512, blank=True)
    payload = models.JSONField(db_default={})  # the frozen message: text, html, payload, thread
    payload_sha256 = models.CharField(max_length=64, blank=True)
    notification_id = models.CharField(max_length=512, blank=True, db_default="")
    notified_at = models.DateTimeField(null=True, blank=True)
    attempts = models.IntegerField(db_default=0)
    error_class = models.CharField(max_length=32, blank=True, db_default="")
    detail = models.CharField(max_length=1024, blank=True, db_default="")  # redacted
    repeat_notice = models.CharField(max_length=200, blank=True, db_default="")  # a resend that may repeat
    # Set: sent together with the recipient's other reviews. Most rows have none, so the index is partial.
    digest = models.ForeignKey(
        "notifications.Digest",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        db_index=False,
        related_name="deliveries",
    )
    # The mail service's later report.
    delivery_state = models.CharField(max_length=10, choices=DeliveryState.choices, blank=True, db_default="")
    delivery_state_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "deliveries"
        verbose_name_plural = "deliveries"
        permissions = [
            ("decide_delivery", "Can decide about uncertain deliveries"),
            ("test_provider", "Can send test messages"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["changelist_id", "recipient", "review_version", "series"],
                name="deliveries_one_per_intent",
            ),
            # Send, then mark: a sent row has the provider's id and time, an unsent row never both.
            # `notification_id` alone on an unsent row means "may have been sent".
            models.CheckConstraint(
                condition=(Q(status=DeliveryStatus.SENT, notified_at__isnull=False) & ~Q(notification_id=""))
                | (~Q(status=DeliveryStatus.SENT) & (Q(notified_at__isnull=True) | Q(notification_id=""))),
                name="deliveries_send_then_mark",
            ),
        ]
        indexes = [
            models.Index(
                fields=["updated_at"],
                condition=~Q(status__in=[status.value for status in SETTLED_DELIVERY]),
                name="deliveries_open",
            ),
            models.Index(fields=["digest"], condition=Q(digest__isnull=False), name="deliveries_of_digest"),
            # Messages whose lifetime ends (`security.expired_copies`).
            models.Index(fields=["created_at"], condition=~Q(payload={}), name="deliveries_with_message"),
            # The admin's list and the dashboard; failures; the deliveries of a recipient.
            models.Index(fields=["-created_at", "-id"], name="deliveries_newest"),
            models.Index(
                fields=["status", "-created_at", "-id"],
                condition=~Q(status__in=["sent", "pending", "sending"]),
                name="deliveries_not_sent",
            ),
            models.Index(fields=["recipient", "-created_at", "-id"], name="deliveries_of_recipient"),
            # Reports of mail services name the message by its id.
            models.Index(
                fields=["notification_id"], condition=~Q(notification_id=""), name="deliveries_by_message"
            ),
        ]
        triggers = [fsm(DELIVERY_TRANSITIONS)]

    def __str__(self) -> str:
        return f"{self.changelist_id} v{self.review_version} to {self.recipient}"

    @property
    def state_words(self) -> str:
        """Return the status for people; a message in a maildir was written, not sent."""
        if self.status == DeliveryStatus.SENT and self.provider == MAILDIR:
            return "Written to a folder of this server"
        return str(DeliveryStatus(self.status).label)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing works on it any more."""
        return self.status in SETTLED_DELIVERY

    @property
    def waits_until(self) -> datetime | None:
        """Return when the digest it waits for is due, None where it waits for none."""
        if self.status != DeliveryStatus.PENDING or self.digest is None or self.digest.closed_at is not None:
            return None
        return self.digest.due_at


class DeliveryAttempt(models.Model):
    """One call of a provider, written as started before it, closed after it."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="attempt_rows")
    number = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=SendOutcome.choices, db_default=SendOutcome.STARTED)
    notification_id = models.CharField(max_length=512, blank=True, db_default="")
    error_class = models.CharField(max_length=32, blank=True, db_default="")
    detail = models.CharField(max_length=1024, blank=True, db_default="")  # redacted

    class Meta:
        db_table = "delivery_attempts"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"attempt {self.number} ({self.outcome})"
