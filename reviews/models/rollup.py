"""Counts of what happened, kept by stretches of time, so that no page counts the rows themselves."""

from __future__ import annotations

from django.db import models


class Rollup(models.Model):
    """How many of something happened in five minutes, or in an hour. `rollup` is the only writer."""

    class Kind(models.TextChoices):
        JOBS = "jobs", "Jobs that ended"  # label: status
        ATTEMPTS = "attempts", "Attempts"  # label: stage:outcome:error class
        LATENCY = "latency", "Times"  # label: stage (or "review"):step, see `rollup.step_seconds`
        DELIVERIES = "deliveries", "Deliveries"  # label: status
        MARK = (
            "mark",
            "How far it is done",
        )  # one row: until when; number: when it was last brought up to date

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
