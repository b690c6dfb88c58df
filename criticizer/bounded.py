"""Questions to the database with an end: statements with a time limit, counts with a bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet

from criticizer.failures import sqlstate_of

MAX_COUNTED = 10_000
_CANCELLED = "57014"


class Count(int):
    """A number of rows that says when it is not exact: `10 000+`, or `many`."""

    text: str
    is_exact: bool

    def __new__(cls, number: int, text: str = "") -> Self:
        made = super().__new__(cls, number)
        made.text = text or f"{number:,}".replace(",", "\u2009")
        made.is_exact = not text
        return made

    @classmethod
    def up_to(cls, number: int, limit: int = MAX_COUNTED) -> Self:
        """Return what was counted up to `limit + 1`."""
        return cls(number) if number <= limit else cls(limit, f"{cls(limit)}+")

    def __str__(self) -> str:
        return self.text


class TookTooLong(Exception):
    """The statement was cancelled at its time limit."""


@contextmanager
def at_most(milliseconds: int, *switched_off: str) -> Iterator[None]:
    """Cancel any statement inside that runs longer. Raises TookTooLong; nothing stays limited.

    `switched_off`: settings of PostgreSQL's planner that are off inside, such as `enable_seqscan`.
    """
    is_inner = connection.in_atomic_block
    limits = [f"SET LOCAL statement_timeout = {int(milliseconds)}"]
    limits += [f"SET LOCAL {name} = off" for name in switched_off]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("; ".join(limits))
            yield
            if is_inner:  # they would outlive this block
                names = ("statement_timeout", *switched_off)
                cursor.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in names))
    except OperationalError as error:
        if sqlstate_of(error) != _CANCELLED:
            raise
        raise TookTooLong from error


def bounded_count(rows: QuerySet[Any], limit: int = MAX_COUNTED, milliseconds: int | None = None) -> Count:
    """Count `rows` up to `limit`: `SELECT count(*) FROM (… LIMIT limit + 1)`.

    What takes longer than settings.COUNT_MILLISECONDS is "many".
    """
    try:
        with at_most(settings.COUNT_MILLISECONDS if milliseconds is None else milliseconds):
            number = rows.order_by().values("pk")[: limit + 1].count()
    except TookTooLong:
        return Count(limit, "many")
    return Count.up_to(number, limit)
