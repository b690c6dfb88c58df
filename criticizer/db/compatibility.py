"""Check that an older version keeps working after a migration.

Columns that the older version reads must stay, and rows that it writes must be accepted. Operations are
judged by their kind, from the states before and after. SQL, Python and triggers cannot be judged: they are
listed for a person to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from django.db.migrations import operations as django
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED, CheckConstraint, Field


class Verdict(StrEnum):
    BREAKS = "breaks an older version"
    UNKNOWN = "cannot be judged"


@dataclass(frozen=True, slots=True)
class RiskyOperation:
    """One operation that may break an older version."""

    migration: str
    verdict: Verdict
    reason: str


_REMOVING = {
    django.RemoveField: "removes the field {0.model_name}.{0.name}, which the older version reads",
    django.RenameField: "renames the field {0.model_name}.{0.old_name}, which the older version reads",
    django.DeleteModel: "deletes the table of {0.name}, which the older version reads",
    django.RenameModel: "renames {0.old_name}, whose table the older version reads",
    django.AlterModelTable: "renames the table of {0.name}, which the older version reads",
    django.AlterUniqueTogether: "makes fields of {0.name} unique; the older version may write others",
}
_HARMLESS = (
    django.CreateModel,
    django.AddIndex,
    django.RemoveIndex,
    django.RenameIndex,
    django.RemoveConstraint,
    django.AlterModelOptions,
    django.AlterModelManagers,
)


def judge(migrations: Iterable[Migration], state: ProjectState) -> Iterator[RiskyOperation]:
    """Yield operations that may break an older version.

    `state` is the one before the first migration; it is changed in place.
    """
    for migration in migrations:
        for operation in migration.operations:
            before = state.clone()
            operation.state_forwards(migration.app_label, state)
            yield from _judge(migration, operation, before, state)


def _judge(
    migration: Migration, operation: Operation, before: ProjectState, after: ProjectState
) -> Iterator[RiskyOperation]:
    name = f"{migration.app_label}.{migration.name}"
    reason = _REMOVING.get(type(operation))
    if reason is not None:
        yield RiskyOperation(name, Verdict.BREAKS, reason.format(operation))
    elif isinstance(operation, django.AddField):
        if not _has_default(operation.field):
            where = f"{operation.model_name}.{operation.name}"
            yield RiskyOperation(
                name,
                Verdict.BREAKS,
                f"adds {where} without null and without db_default: rows of the older version lack it",
            )
    elif isinstance(operation, django.AlterField):
        key = (migration.app_label, operation.model_name.lower())
        yield from _altered(
            name,
            f"{operation.model_name}.{operation.name}",
            before.models[key].fields[operation.name],
            after.models[key].fields[operation.name],
        )
    elif isinstance(operation, django.AddConstraint):
        kind = "a check" if isinstance(operation.constraint, CheckConstraint) else "a constraint"
        reason = f"adds {kind}, {operation.constraint.name}: the older version may write rows that it refuses"
        yield RiskyOperation(name, Verdict.UNKNOWN, reason)
    elif not isinstance(operation, _HARMLESS):
        yield RiskyOperation(name, Verdict.UNKNOWN, f"contains {operation.describe()}: check it by hand")


def _has_default(field: Field) -> bool:  # type: ignore[type-arg]
    is_column = getattr(field, "many_to_many", None) is not True
    return not is_column or field.null or field.db_default is not NOT_PROVIDED


def _altered(migration: str, where: str, old: Field, new: Field) -> Iterator[RiskyOperation]:  # type: ignore[type-arg]
    breaks = partial(RiskyOperation, migration, Verdict.BREAKS)
    if type(old) is not type(new):
        kinds = f"{type(old).__name__} to {type(new).__name__}"
        yield RiskyOperation(migration, Verdict.UNKNOWN, f"changes {where} from {kinds}")
    if old.null and not new.null:
        yield breaks(f"refuses null in {where}, which the older version may write")
    if new.unique and not old.unique:
        yield breaks(f"makes {where} unique; the older version may write it twice")
    if old.db_default is not NOT_PROVIDED and new.db_default is NOT_PROVIDED:
        yield breaks(f"removes the default of {where}, which the older version needs")
    if (new.max_length or 0) < (old.max_length or 0):
        yield breaks(f"shortens {where} to {new.max_length} characters")
