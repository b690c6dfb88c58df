"""Scheduled scans of documentation: paths, each scan, and its result for each document."""

from __future__ import annotations

import pgtrigger
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import audited
from reviews.models.jobs import ReviewJob


@audited("scanned-path edit", exclude=["next_at", "problem"])
class ScanTarget(models.Model):
    """A repository, or a folder of one, whose documents are scanned; audited by pghistory.

    `reviews.intake.scan_schedule` writes `next_at` and `problem`, and an edit of the interval clears both:
    they are no edits. The path stays: who may read the scans follows from it (guarantee G541).
    """

    path = models.CharField(
        max_length=1024,
        unique=True,
        help_text="Such as //app/... for the git repository app, or //app/docs/... for a folder of it.",
    )
    every_hours = models.PositiveIntegerField(
        "every (hours)",
        default=0,
        validators=[MaxValueValidator(8_760)],
        help_text="How often it is scanned; 0: only when it is asked for.",
    )
    recipients = models.TextField(
        blank=True,
        db_default="",
        help_text="Who is notified of each scan, one a line, such as mail:ann@example.com. Empty: no one.",
    )
    reason = models.CharField(max_length=255, help_text="Why it is scanned: a ticket or a sentence.")
    next_at = models.DateTimeField(null=True, blank=True, editable=False)  # None: not yet, or never
    # Why the last scheduled scan could not be requested; redacted.
    problem = models.CharField(max_length=512, blank=True, db_default="", editable=False)

    class Meta:
        db_table = "scan_targets"
        verbose_name = "scanned path"
        ordering = ["path"]
        # What the schedule looks for.
        indexes = [
            models.Index(fields=["next_at"], condition=Q(every_hours__gt=0), name="scan_targets_scheduled")
        ]
        triggers = [pgtrigger.ReadOnly(name="path_stays", fields=["path"])]

    def __str__(self) -> str:
        return self.path

    @property
    def folder(self) -> str:
        """Return the depot folder that is scanned, with its slash."""
        return self.path.removesuffix("...")


class Scan(models.Model):
    """The job of one scan. Its changelist is the commit that was scanned."""

    job = models.OneToOneField(ReviewJob, on_delete=models.CASCADE, primary_key=True, related_name="scan")
    target = models.ForeignKey(ScanTarget, on_delete=models.CASCADE, related_name="scans")

    class Meta:
        db_table = "scans"

    def __str__(self) -> str:
        return f"scan {self.job_id}"


class ScanDocument(models.Model):
    """One document of a scan: first how many claims it has, then the verdict of each.

    Written by `reviews.stages.scan` under the lease of its stage: each once. Texts are redacted. `claims` of
    older scans are dropped, the counts stay.
    """

    scan = models.ForeignKey(Scan, on_delete=models.CASCADE, related_name="documents", db_index=False)
    digest = models.CharField(max_length=64)  # of the path, which may be redacted
    path = models.CharField(max_length=1024)
    total = models.IntegerField(db_default=0)  # claims
    verified_at = models.DateTimeField(null=True, blank=True)  # None: not yet
    unread = models.CharField(max_length=64, blank=True, db_default="")  # why it was not read
    holds = models.IntegerField(db_default=0)
    refuted = models.IntegerField(db_default=0)
    ambiguous = models.IntegerField(db_default=0)
    uncheckable = models.IntegerField(db_default=0)
    claims = models.JSONField(default=list, db_default=[])
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "scan_documents"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["scan", "digest"], name="scan_documents_once")]

    def __str__(self) -> str:
        return f"{self.path} of scan {self.scan_id}"
