"""Suppressed addresses, and mails without a copy in the archive."""

from __future__ import annotations

from uuid import UUID

import pgtrigger
from django.db import Error as DatabaseError
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower, Now

from criticizer.resilience.classification import classify


class Suppression(models.Model):
    """An address that gets no mail. `notifications.suppressions.bounces` is the only writer.

    Rows are their own history: lifted once, with actor and reason, and never changed or deleted.
    """

    class Reason(models.TextChoices):
        BOUNCED = "bounced", "Mail to it bounced for good"
        COMPLAINED = "complained", "Its reader reported mail as spam"

    address = models.CharField(max_length=254)  # lower case: mailboxes are compared without case
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
            # An event that is reported again after its suppression was lifted suppresses nothing.
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


class UnarchivedMails(models.Manager["UnarchivedMail"]):
    """The tokens in the table as a set, for `providers.email.smtp.Unarchived`."""

    def add(self, token: UUID, /) -> None:
        """Store a token, in a commit of its own. Raises RetryableFailure when that fails."""
        try:
            self.bulk_create([self.model(token=token)], ignore_conflicts=True)
        except DatabaseError as error:
            raise classify(error) from error

    def __contains__(self, token: object, /) -> bool:
        return isinstance(token, UUID) and self.filter(token=token).exists()


class UnarchivedMail(models.Model):
    """A message whose archive copy was refused: its absence from the archive proves nothing."""

    token = models.UUIDField(primary_key=True)
    created_at = models.DateTimeField(db_default=Now())

    objects = UnarchivedMails()

    class Meta:
        app_label = "notifications"
        db_table = "unarchived_mails"

    def __str__(self) -> str:
        return str(self.token)
