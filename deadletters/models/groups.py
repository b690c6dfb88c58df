"""Groups of letters with the same fingerprint, with their days and their timeline."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import fsm
from deadletters.models.shared import TimelineEvent, row_version_trigger
from deadletters.states import GROUP_TRANSITIONS, GroupAction, GroupStatus


class DeadLetterGroup(models.Model):
    """Letters with the same fingerprint.

    Triggers on the letters' table keep `open_count`; `groups.occurred` keeps the other numbers.
    """

    fingerprint = models.CharField(max_length=80, unique=True)  # "v1:<hex>"
    stage = models.CharField(max_length=10)
    error_class = models.CharField(max_length=32)
    source = models.CharField(max_length=128, blank=True)  # the dependency, as circuits name it
    normalized_message = models.CharField(max_length=500, blank=True)
    first_seen = models.DateTimeField(db_default=Now())
    last_seen = models.DateTimeField(db_default=Now())
    open_count = models.IntegerField(db_default=0)
    total_count = models.IntegerField(db_default=0)  # occurrences, a letter that failed again included
    status = models.CharField(max_length=12, choices=GroupStatus.choices, db_default=GroupStatus.OPEN)
    owner = models.CharField(max_length=255, blank=True, db_default="")
    note = models.TextField(blank=True, db_default="")
    runbook_url = models.CharField(max_length=500, blank=True, db_default="")
    snooze_until = models.DateTimeField(null=True, blank=True)
    row_version = models.IntegerField(db_default=0)

    class Meta:
        db_table = "dead_letter_groups"
        verbose_name = "failure group"
        indexes = [
            # The landing page: what is open, latest first; and everything, latest first.
            models.Index(
                fields=["-last_seen", "-id"],
                condition=Q(status__in=["open", "acknowledged"]),
                name="letter_groups_open",
            ),
            models.Index(fields=["-last_seen", "-id"], name="letter_groups_latest"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=GroupStatus.values), name="letter_groups_known_status"
            ),
            models.CheckConstraint(
                condition=Q(open_count__gte=0, total_count__gte=0), name="letter_groups_count_up"
            ),
        ]
        triggers = [
            # Only changes of the status: every failure of a group updates its row.
            fsm(GROUP_TRANSITIONS, condition=pgtrigger.Q(old__status__df=pgtrigger.F("new__status"))),
            row_version_trigger("status", "owner", "note", "runbook_url", "snooze_until"),
        ]
        permissions = [("work_deadlettergroup", "Can acknowledge, resolve, ignore and annotate groups")]

    def __str__(self) -> str:
        return f"{self.error_class} in {self.stage}"


class DeadLetterGroupDay(models.Model):
    """Count of a group's failures on one day (UTC)."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.CASCADE, related_name="days", db_index=False)
    day = models.DateField()
    count = models.IntegerField(db_default=0)

    class Meta:
        db_table = "dead_letter_group_days"
        constraints = [models.UniqueConstraint(fields=["group", "day"], name="letter_group_days_one")]

    def __str__(self) -> str:
        return f"{self.count} on {self.day}"


class DeadLetterGroupEvent(TimelineEvent):
    """One line of a group's timeline: append-only."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.DO_NOTHING, related_name="events")
    action = models.CharField(max_length=16, choices=GroupAction.choices)

    class Meta(TimelineEvent.Meta):
        db_table = "dead_letter_group_events"
