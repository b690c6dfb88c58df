"""What stays of letters that were removed, and what operators were told."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models.functions import Now

from criticizer.db.triggers import no_truncate


class LetterArchive(models.Model):
    """One encrypted file of removed letters: where it lies and what it must be."""

    name = models.CharField(max_length=255, unique=True)  # within the storage
    sha256 = models.CharField(max_length=64)  # of the plain lines
    key_id = models.CharField(max_length=12)  # `vault.key_id` of what seals it
    letter_count = models.IntegerField()
    untouched_count = models.IntegerField(null=True)  # of them: those nobody had touched; null: not counted
    restored_count = models.IntegerField(db_default=0)  # of them: that came back at least once
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
            # A file that is sealed anew has another name and another key, and the same letters.
            pgtrigger.ReadOnly(
                name="as_written",
                fields=["sha256", "letter_count", "first_letter", "last_letter", "created_at"],
            ),
            # Without its row a file is no longer found, and nobody knows what it must be.
            pgtrigger.Protect(name="stays", operation=pgtrigger.Delete),
            no_truncate(),
        ]

    def __str__(self) -> str:
        return self.name


class OperatorAlert(models.Model):
    """One thing that operators are told, once for each key (mail and webhook; OPERATOR_ALERTS)."""

    dedup_key = models.CharField(max_length=255, unique=True)
    kind = models.CharField(max_length=32)
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)  # redacted
    path = models.CharField(max_length=255, blank=True)  # of the page that shows more
    created_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(db_default=0)
    sent_to = models.JSONField(db_default=[])  # recipients who have it
    sent_at = models.DateTimeField(null=True, blank=True)  # when everybody had it, or nobody else could
    detail = models.TextField(blank=True, db_default="")  # why somebody has it not

    class Meta:
        db_table = "operator_alerts"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title
