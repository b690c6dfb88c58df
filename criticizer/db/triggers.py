"""Database triggers shared by the tables of all apps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pghistory
import pgtrigger
from django.db.models import DO_NOTHING, TextChoices
from django.utils.text import capfirst


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
    """Return the trigger that refuses TRUNCATE, for which triggers on rows do not run."""
    return pgtrigger.Trigger(
        name="no_truncate",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;",
    )


def audited(edit: str, **options: Any) -> Any:
    """Decorate a model to keep an append-only history of its rows, which outlives them.

    `edit` is the name of one entry, shown to people. `options` are those of `pghistory.track`.
    """
    return pghistory.track(
        pghistory.InsertEvent(),
        pghistory.UpdateEvent(),
        pghistory.DeleteEvent(),
        append_only=True,
        meta={"verbose_name": edit},
        attrs={"__str__": lambda entry: f"{capfirst(edit)} {entry.pk}"},
        obj_field=pghistory.ObjForeignKey(on_delete=DO_NOTHING, null=True, db_constraint=False),
        **options,
    )
