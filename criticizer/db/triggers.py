"""Database triggers shared by the tables of all apps."""

from __future__ import annotations

from collections.abc import Iterable

import pgtrigger
from django.db.models import TextChoices


def fsm(
    transitions: Iterable[tuple[TextChoices, TextChoices]],
    *,
    field: str = "status",
    condition: pgtrigger.Q | None = None,
) -> pgtrigger.FSM:
    """Return the trigger that refuses every move between states that `transitions` do not list."""
    return pgtrigger.FSM(
        name=f"{field}_fsm",
        field=field,
        transitions=[(before.value, after.value) for before, after in transitions],
        condition=condition,
    )


def append_only() -> list[pgtrigger.Trigger]:
    """Return triggers that refuse UPDATE, DELETE and TRUNCATE."""
    return [
        pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete),
        no_truncate(),
    ]


def no_truncate() -> pgtrigger.Trigger:
    """Return the trigger that refuses TRUNCATE, which triggers on rows do not see."""
    return pgtrigger.Trigger(
        name="no_truncate",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;",
    )
