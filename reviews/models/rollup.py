"""Counts by stretches of time, so that no page counts the rows themselves."""

from __future__ import annotations

from django.db import models


class Rollup(models.Model):
    """A count over five minutes or an hour. Only `reviews.dashboard.rollup` writes it."""

    class Kind(models.TextChoices):
        JOBS = "jobs", "Jobs that ended"  # label: status
        ATTEMPTS = "attempts", "Attempts"  # label: stage:outcome:error class
        LATENCY = "latency", "Times"  # label: stage (or "review"):step, see `rollup.step_seconds`
        DELIVERIES = "deliveries", "Deliveries"  # label: status
        MARK = "mark", "Progress"  # one row: counted until `started_at`, last updated at `number`

    pk = models.CompositePrimaryKey("seconds", "started_at", "kind", "label")
    seconds = models.SmallIntegerField()  # the length: 300 or 3600
    started_at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    label = models.CharField(max_length=80)
    number = models.BigIntegerField()

    class Meta:
        db_table = "rollups"

    def __str__(self) -> str:
        return f"{self.kind} {self.label}: {self.number}"
