"""Digests: one message about several reviews. `digests.lifecycle` is the only writer."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Digest(models.Model):
    """One message to a recipient about several reviews: the deliveries that reference it.

    While open it takes further reviews until `due_at` and has no message. The first job that comes then
    closes it, and its delivery carries the digest: its attempts are the evidence for all.
    """

    recipient = models.CharField(max_length=512)
    due_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    carrier = models.OneToOneField(
        "notifications.Delivery", on_delete=models.SET_NULL, null=True, blank=True, related_name="carries"
    )
    token = models.UUIDField(unique=True, null=True, blank=True)  # UUIDv5 of its deliveries' tokens
    subject = models.CharField(max_length=512, blank=True, db_default="")
    payload = models.JSONField(db_default={})  # the frozen message, as in a delivery
    payload_sha256 = models.CharField(max_length=64, blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "notifications"
        db_table = "digests"
        constraints = [
            models.CheckConstraint(
                condition=(
                    Q(closed_at__isnull=True, token__isnull=True, carrier__isnull=True, payload_sha256="")
                )
                | (Q(closed_at__isnull=False, token__isnull=False) & ~Q(payload_sha256="")),
                name="digests_closed_with_a_message",
            )
        ]
        indexes = [
            # The recipient's open digest.
            models.Index(fields=["recipient"], condition=Q(closed_at__isnull=True), name="digests_open")
        ]

    def __str__(self) -> str:
        return f"digest {self.pk} to {self.recipient}"
