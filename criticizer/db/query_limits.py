"""Questions to the database with an end: statements with a time limit, counts with a bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet

from criticizer.resilience.failures import sqlstate_of

MAX_COUNTED = 10_000
_CANCELLED = "57014"


class BoundedCount(int):
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


class StatementTimeout(Exception):
    """The statement was cancelled at its time limit."""


# A page wants the first rows in an order: workers beside the server's own process find thousands
# that nobody asked for before they notice that there are enough.
ALONE: Mapping[str, str] = {"max_parallel_workers_per_gather": "0"}


@contextmanager
def statement_timeout(milliseconds: int, planner: Mapping[str, str] = {}) -> Iterator[None]:
    """Cancel any statement inside that runs longer. Raises TookTooLong; nothing stays limited.

    `planner`: settings of PostgreSQL's planner that hold inside, such as `ALONE`.
    """
    is_inner = connection.in_atomic_block
    limits = {"statement_timeout": str(int(milliseconds)), **planner}
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("; ".join(f"SET LOCAL {name} = {value}" for name, value in limits.items()))
            yield
            if is_inner:  # they would outlive this block
                cursor.execute("; ".join(f"SET LOCAL {name} TO DEFAULT" for name in limits))
    except OperationalError as error:
        if sqlstate_of(error) != _CANCELLED:
            raise
        raise StatementTimeout from error


def bounded_count(
    rows: QuerySet[Any], limit: int = MAX_COUNTED, milliseconds: int | None = None
) -> BoundedCount:
    """Count `rows` up to `limit`: `SELECT count(*) FROM (… LIMIT limit + 1)`.

    What takes longer than settings.COUNT_MILLISECONDS is "many".
    """
    try:
        with statement_timeout(settings.COUNT_MILLISECONDS if milliseconds is None else milliseconds, ALONE):
            number = rows.order_by().values("pk")[: limit + 1].count()
    except StatementTimeout:
        return BoundedCount(limit, "many")
    return BoundedCount.up_to(number, limit)
