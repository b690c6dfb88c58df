"""Addresses that get no mail any more, and mails that the archive has no copy of."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower, Now


class Suppression(models.Model):
    """An address that mail is not sent to. `notifications.suppressions` is the only writer.

    Rows are their own history: one is lifted once, with who and why, and never changed or deleted.
    """

    class Reason(models.TextChoices):
        BOUNCED = "bounced", "Mail to it bounced for good"
        COMPLAINED = "complained", "Its reader reported mail as spam"

    address = models.CharField(max_length=254)  # lower case: a mailbox is not told apart by case
    reason = models.CharField(max_length=12, choices=Reason.choices)
    provider = models.CharField(max_length=32)
    event_id = models.CharField(max_length=255)  # the provider's, or a digest of the event
    detail = models.CharField(max_length=500, blank=True, db_default="")  # redacted
    created_at = models.DateTimeField(db_default=Now())
    lifted_at = models.DateTimeField(null=True, blank=True)
    lifted_by = models.CharField(max_length=255, blank=True, db_default="")
    lift_reason = models.CharField(max_length=500, blank=True, db_default="")

    class Meta:
        app_label = "notifications"
        db_table = "suppressions"
        verbose_name = "suppressed address"
        verbose_name_plural = "suppressed addresses"
        permissions = [("lift_suppression", "Can lift suppressions of addresses")]
        constraints = [
            models.UniqueConstraint(
                fields=["address"], condition=Q(lifted_at__isnull=True), name="suppressions_one_in_force"
            ),
            # An event that is reported again, after its suppression was lifted, suppresses nothing.
            models.UniqueConstraint(fields=["provider", "event_id"], name="suppressions_one_per_event"),
            models.CheckConstraint(condition=Q(address=Lower(F("address"))), name="suppressions_lower_case"),
            models.CheckConstraint(
                condition=Q(lifted_at__isnull=True, lifted_by="", lift_reason="")
                | (Q(lifted_at__isnull=False) & ~Q(lifted_by="") & ~Q(lift_reason="")),
                name="suppressions_lifted_by_somebody",
            ),
        ]
        triggers = [
            pgtrigger.Protect(name="stays", operation=pgtrigger.Delete),
            pgtrigger.ReadOnly(
                name="facts_stay",
                fields=["address", "reason", "provider", "event_id", "detail", "created_at"],
            ),
            pgtrigger.Protect(
                name="lifted_once",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__lifted_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.address


class UnarchivedMail(models.Model):
    """A message of whose sending the archive knows nothing: its copy was refused there."""

    token = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "notifications"
        db_table = "unarchived_mails"

    def __str__(self) -> str:
        return str(self.token)
