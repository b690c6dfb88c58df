"""The configurations of repositories as reviews found them."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from reviews.models.jobs import ReviewJob


class RepositoryConfiguration(models.Model):
    """The newest `.criticizer.yml` that a review used, one row per repository and branch.

    Only `reviews.repository_configuration` writes it, with the fetch stage's commit.
    """

    root = models.CharField(max_length=1024)  # the file's folder, with a trailing slash
    branch = models.CharField(max_length=255, blank=True, db_default="")  # of pull requests
    # What a file that cannot be read falls back on; None until a valid file was seen.
    protecting = models.JSONField(null=True, blank=True)
    configuration = models.JSONField(db_default={})
    text = models.TextField(blank=True, db_default="")  # redacted
    job = models.ForeignKey(ReviewJob, on_delete=models.SET_NULL, null=True, related_name="+")
    revision = models.BigIntegerField(db_default=0)  # the changelist's number, 0 for other sources
    seen_at = models.DateTimeField(db_default=Now())  # when that review was requested

    class Meta:
        db_table = "repository_configurations"
        verbose_name = "configuration of a repository"
        verbose_name_plural = "configurations of repositories"
        constraints = [
            models.UniqueConstraint(fields=["root", "branch"], name="repository_configurations_once")
        ]

    def __str__(self) -> str:
        return f"{self.root} {self.branch}".rstrip()
