"""Conditions and version counters shared by the tables."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Now, Trim
from django.db.models.lookups import GreaterThanOrEqual

from criticizer.db.triggers import append_only
from deadletters.states import EventSource

MIN_REASON_CHARS = 3  # characters of a reason, a note or a resolution, by CHECK


def has_text(field: str) -> GreaterThanOrEqual:
    """Return the condition that a text has at least MIN_REASON_CHARS characters."""
    return GreaterThanOrEqual(Length(Trim(field)), MIN_REASON_CHARS)


def status_in(*statuses: models.TextChoices) -> Q:
    return Q(status__in=[status.value for status in statuses])


class TimelineEvent(models.Model):
    """One line of a timeline: append-only."""

    actor = models.CharField(max_length=255)
    source = models.CharField(max_length=20, choices=EventSource.choices, db_default=EventSource.OPERATOR)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True
        ordering = ["id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"  # type: ignore[attr-defined]  # each has actions of its own


def row_version_trigger(*fields: str) -> pgtrigger.Trigger:
    """Return the trigger that counts versions of a row, so that stale forms are refused.

    With `fields`, only changes of these count.
    """
    count = "NEW.row_version = OLD.row_version + 1;"
    if fields:
        old, new = (", ".join(f"{row}.{field}" for field in fields) for row in ("OLD", "NEW"))
        count = f"IF ({old}) IS DISTINCT FROM ({new}) THEN {count} END IF;"
    return pgtrigger.Trigger(
        name="row_version", when=pgtrigger.Before, operation=pgtrigger.Update, func=f"{count} RETURN NEW;"
    )
