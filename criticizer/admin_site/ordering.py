"""The orders of a list by key, and the positions in them.

Each order is fixed and served by an index; a position is the values of a row in the order's fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import F, Func, Model, Q, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Ordering:
    """A fixed order of a list: all fields in one direction, none ever null, the key last.

    `where` narrows the list to the rows that a partial index holds. `is_of_creation`: the first field is the
    time at which the row was written, so that the order is that of the keys, give or take some minutes.
    """

    title: str
    fields: tuple[str, ...]
    where: Q = field(default_factory=Q)
    is_of_creation: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") for name in self.fields)

    @property
    def is_descending(self) -> bool:
        return self.fields[0].startswith("-")

    def reversed(self) -> tuple[str, ...]:
        return self.names if self.is_descending else tuple(f"-{name}" for name in self.names)

    def check(self, model: type[Model]) -> None:
        """Raise ImproperlyConfigured unless pages of `model` can be cut by this order."""
        columns = [_column(model, name) for name in self.names]
        if len({name.startswith("-") for name in self.fields}) != 1 or not columns[-1].primary_key:
            raise ImproperlyConfigured(f"{self.fields}: needs one direction, and the key last")
        if any(column.null for column in columns) and not self.where:
            raise ImproperlyConfigured(f"{self.fields}: null cannot be sorted; exclude it")


class _Beyond(Func):
    """One comparison of rows, `(a, b) < (1, 2)`, which is one range of an index."""

    output_field = models.BooleanField()

    def __init__(self, *expressions: Any, sign: str) -> None:
        super().__init__(*expressions)
        self.sign = sign

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        parts = [compiler.compile(part) for part in self.source_expressions]
        half = len(parts) // 2
        left, right = (", ".join(sql for sql, _ in side) for side in (parts[:half], parts[half:]))
        return f"(({left}) {self.sign} ({right}))", [value for _, values in parts for value in values]


def beyond(model: type[Model], ordering: Ordering, values: Sequence[Any], *, backwards: bool) -> _Beyond:
    """Return the condition for rows after `values` in `ordering` (before, if `backwards`)."""
    sign = "<" if ordering.is_descending != backwards else ">"
    places = [Value(value, _column(model, name)) for value, name in zip(values, ordering.names, strict=True)]
    return _Beyond(*(F(name) for name in ordering.names), *places, sign=sign)


def up_to(model: type[Model], ordering: Ordering, values: Sequence[Any]) -> _Beyond:
    """Return the condition for rows up to the one with these values, which is the last."""
    found = beyond(model, ordering, values, backwards=True)
    found.sign += "="
    return found


def cursor_of(row: Model, ordering: Ordering) -> str:
    """Return a row's position in `ordering` as `<value>,<key>`.

    Times are microseconds since 1970.
    """
    return cursor([getattr(row, name) for name in ordering.names])


def cursor(values: Sequence[Any]) -> str:
    """Return a position, the values of an ordering's fields, as text."""
    return ",".join(quote(_written(value), safe="") for value in values)


def read_cursor(text: str, model: type[Model], ordering: Ordering) -> list[Any] | None:
    """Parse the output of `cursor_of`; None for anything else."""
    parts = text.split(",")
    if not text or len(parts) != len(ordering.names) or len(text) > 1000:
        return None
    try:
        return [
            _read(unquote(part), _column(model, name))
            for part, name in zip(parts, ordering.names, strict=True)
        ]
    except (ValueError, OverflowError):
        return None


def _column(model: type[Model], name: str) -> models.Field[Any, Any]:
    options = model._meta  # noqa: SLF001  documented API in spite of its name
    column = options.pk if name == "pk" else options.get_field(name)
    assert isinstance(column, models.Field)
    return column


def _written(value: Any) -> str:
    return str((value - _EPOCH) // _MICROSECOND) if isinstance(value, datetime) else str(value)


def _read(text: str, column: models.Field[Any, Any]) -> Any:
    """Parse a value of `column`. Raises ValueError."""
    if isinstance(column, models.DateTimeField | models.IntegerField):
        if not text.removeprefix("-").isdigit() or not text.isascii() or len(text) > 18:
            raise ValueError(text)
        number = int(text)
        return _EPOCH + number * _MICROSECOND if isinstance(column, models.DateTimeField) else number
    if "\x00" in text:
        raise ValueError(text)
    return column.to_python(text)
