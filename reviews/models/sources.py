"""Events of the sources, and the position of the poll in each of them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from reviews.models.jobs import ReviewJob


class SourceEvent(models.Model):
    """One event of a source, from a trigger or the poll.

    Only `reviews.intake.source_events` writes it.
    """

    class Kind(models.TextChoices):
        CHANGE = "change-commit", "Submitted"
        SHELVE = "shelve-commit", "Shelved"
        COMMIT = "git-commit", "Committed"

    class Origin(models.TextChoices):
        TRIGGER = "trigger", "Trigger"
        POLL = "poll", "Poll"

    class Outcome(models.TextChoices):
        CREATED = "created", "Made a job"
        JOINED = "joined", "Joined a job that had not read the shelf yet"
        SEEN_BEFORE = "seen_before", "Had its job already"
        FOUND_BY_POLL = "found_by_poll", "Found by the poll, without a trigger"
        REFUSED = "refused", "Refused: the trigger posts it again"

    server = models.CharField(max_length=64)  # as the trigger names it; a git repository's name
    event = models.CharField(max_length=16, choices=Kind.choices)
    changelist_id = models.CharField(max_length=128)
    version_key = models.CharField(max_length=255, blank=True, db_default="")  # content the poll saw
    origin = models.CharField(max_length=8, choices=Origin.choices)
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    job = models.ForeignKey(
        ReviewJob, on_delete=models.SET_NULL, null=True, blank=True, related_name="source_events"
    )
    received_at = models.DateTimeField(db_default=Now())
    repeats = models.IntegerField(db_default=0)  # further posts of the same event
    repeated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "source_events"
        indexes = [
            models.Index(fields=["-received_at", "-id"], name="source_events_newest"),
            # Every event looks up the earlier ones of its changelist.
            models.Index(fields=["changelist_id", "event", "-id"], name="source_events_of"),
        ]
        constraints = [
            # A submit happens once: a repeated event finds the row of the first.
            models.UniqueConstraint(
                fields=["server", "event", "changelist_id"],
                condition=~Q(event="shelve-commit") & ~Q(outcome="refused") & Q(origin="trigger"),
                name="source_events_submit_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.changelist_id}"


class SourcePosition(models.Model):
    """Position of the poll in one stream of changes, written with the jobs it covers."""

    stream = models.CharField(max_length=192, unique=True)  # such as "perforce submitted"
    place = models.CharField(max_length=128, blank=True, db_default="")  # the newest change read
    state = models.JSONField(db_default={})  # further state of the stream
    missing = models.BigIntegerField(db_default=0)  # events without a trigger, ever
    last_missing_at = models.DateTimeField(null=True, blank=True)
    polled_at = models.DateTimeField(db_default=Now())
    problem = models.CharField(max_length=512, blank=True, db_default="")  # why the last run stopped

    class Meta:
        db_table = "source_positions"
        verbose_name = "polled source"

    def __str__(self) -> str:
        return self.stream
