"""Database triggers shared by the tables of all apps."""

from __future__ import annotations

import pgtrigger


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
