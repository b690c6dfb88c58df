"""Conditions and version counters shared by the tables."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Trim
from django.db.models.lookups import GreaterThanOrEqual

from deadletters.states import EventSource

MIN_WORDS = 3  # characters of a reason, a note or a resolution, by CHECK


def has_text(field: str) -> GreaterThanOrEqual:
    """Return the condition that a text has at least MIN_WORDS characters."""
    return GreaterThanOrEqual(Length(Trim(field)), MIN_WORDS)


def status_in(*statuses: models.TextChoices) -> Q:
    return Q(status__in=[status.value for status in statuses])


def source_field() -> models.CharField[str, str]:
    """Return the column of a timeline that holds the source of a line."""
    return models.CharField(max_length=20, choices=EventSource.choices, db_default=EventSource.OPERATOR)


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
