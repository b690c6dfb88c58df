"""Archive files of removed letters, and alerts to operators."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models.functions import Now

from criticizer.db.triggers import no_truncate


class LetterArchive(models.Model):
    """One encrypted file of removed letters: its name, its digest, its key."""

    name = models.CharField(max_length=255, unique=True)  # within the storage
    sha256 = models.CharField(max_length=64)  # of the plain lines
    key_id = models.CharField(max_length=12)  # `vault.key_id` of what seals it
    letter_count = models.IntegerField()
    untouched_count = models.IntegerField(null=True)  # of them: without an operator's step; null: not counted
    restored_count = models.IntegerField(db_default=0)  # of them: restored at least once
    first_letter = models.BigIntegerField()
    last_letter = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "letter_archives"
        ordering = ["-id"]
        verbose_name = "archived file"
        indexes = [models.Index(fields=["created_at"], name="letter_archives_today")]  # the alert's sum
        permissions = [("restore_letterarchive", "Can restore dead letters from the archive")]
        triggers = [
            # Resealing changes a file's name and key only.
            pgtrigger.ReadOnly(
                name="as_written",
                fields=["sha256", "letter_count", "first_letter", "last_letter", "created_at"],
            ),
            # Without its row a file has no digest to be checked against.
            pgtrigger.Protect(name="stays", operation=pgtrigger.Delete),
            no_truncate(),
        ]

    def __str__(self) -> str:
        return self.name


class OperatorAlert(models.Model):
    """One alert to operators by mail and webhook, once a key (OPERATOR_ALERTS)."""

    dedup_key = models.CharField(max_length=255, unique=True)
    kind = models.CharField(max_length=32)
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)  # redacted
    path = models.CharField(max_length=255, blank=True)  # of the page that shows more
    created_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(db_default=0)
    sent_to = models.JSONField(db_default=[])  # recipients who have it
    sent_at = models.DateTimeField(null=True, blank=True)  # every recipient has it, or cannot get it
    detail = models.TextField(blank=True, db_default="")  # why a recipient does not have it
    # The recipient of an attempt without an outcome yet, on disk before the provider is called.
    sending_to = models.CharField(max_length=512, blank=True, db_default="")
    sending_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "operator_alerts"
        ordering = ["-id"]
        indexes = [
            # Alerts to send, and to put together.
            models.Index(fields=["created_at"], condition=models.Q(sent_at=None), name="alerts_unsent")
        ]

    def __str__(self) -> str:
        return self.title
