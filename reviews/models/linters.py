"""Results of a team's own linters, posted to a review. `reviews.linter_results` writes them."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from reviews.models.jobs import ReviewJob
from reviews.reviewers.sarif_import import LEVELS


class LinterResultRow(models.Model):
    """One result of another tool.

    `file` is empty until the result is found on the changed lines of that file. `scope_prefixes`: prefixes
    of the key that posted the result; it applies to files below them only. `is_given`: it was part of the
    model's prompt.
    """

    class Place(models.TextChoices):
        WAITING = "waiting", "The change is not known yet"
        CHANGED = "changed", "On changed lines"
        ELSEWHERE = "elsewhere", "Not on changed lines"

    job = models.ForeignKey(
        ReviewJob, on_delete=models.CASCADE, related_name="linter_results", db_index=False
    )
    digest = models.CharField(max_length=64)  # of all that was reported: a repeated result is one row
    tool = models.CharField(max_length=64)
    rule = models.CharField(max_length=128, blank=True, db_default="")
    level = models.CharField(max_length=7, choices=[(level, level) for level in LEVELS])
    path = models.CharField(max_length=1024)  # as reported
    line = models.IntegerField()
    end_line = models.IntegerField()
    message = models.TextField()
    place = models.CharField(max_length=9, choices=Place.choices, db_default=Place.WAITING)
    file = models.CharField(max_length=1024, blank=True, db_default="")
    is_given = models.BooleanField(db_default=False)
    scope_prefixes = ArrayField(models.TextField(), blank=True, default=list, db_default=[])
    received_by = models.CharField(max_length=255)
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "linter_results"
        verbose_name = "linter result"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "digest"], name="linter_results_one_each"),
            models.CheckConstraint(
                condition=Q(place="changed", file__gt="") | ~Q(place="changed") & Q(file=""),
                name="linter_results_file_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.rule}: {self.path}:{self.line}"
