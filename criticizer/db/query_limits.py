"""Statement timeouts and bounded counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet

from criticizer.resilience.classification import sqlstate_of

MAX_COUNTED = 10_000
_CANCELLED = "57014"


class BoundedCount(int):
    """Number of rows, shown as `10 000+` or `many` when it is not exact."""

    text: str
    is_exact: bool

    def __new__(cls, number: int, text: str = "") -> Self:
        made = super().__new__(cls, number)
        made.text = text or f"{number:,}".replace(",", "\u2009")
        made.is_exact = not text
        return made

    @classmethod
    def up_to(cls, number: int) -> Self:
        """Return the count of a query with `MAX_COUNTED + 1` rows at most."""
        return cls(number) if number <= MAX_COUNTED else cls(MAX_COUNTED, f"{cls(MAX_COUNTED)}+")

    def __str__(self) -> str:
        return self.text


class StatementTimeout(Exception):
    """The statement was cancelled at its time limit."""


# For pages, which need only the first rows: parallel workers would read thousands more before they stop.
NO_PARALLEL_WORKERS: Mapping[str, str] = {"max_parallel_workers_per_gather": "0"}


@contextmanager
def statement_timeout(milliseconds: int, planner: Mapping[str, str] = {}) -> Iterator[None]:
    """Cancel any statement of the block that runs longer. Raises StatementTimeout.

    `planner`: settings of PostgreSQL's planner inside the block, such as `NO_PARALLEL_WORKERS`. After the
    block, the settings of an enclosing block apply again.
    """
    is_inner = connection.in_atomic_block
    limits = {"statement_timeout": str(int(milliseconds)), **planner}
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            outer = {}
            if is_inner:
                cursor.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in limits))
                outer = dict(zip(limits, cursor.fetchone(), strict=True))
            cursor.execute("; ".join(f"SET LOCAL {name} = {value}" for name, value in limits.items()))
            yield
            if is_inner:  # SET LOCAL lasts until the outer transaction ends
                cursor.execute("; ".join(f"SET LOCAL {name} = '{value}'" for name, value in outer.items()))
    except OperationalError as error:
        if sqlstate_of(error) != _CANCELLED:
            raise
        raise StatementTimeout from error


def bounded_count(rows: QuerySet[Any]) -> BoundedCount:
    """Count `rows` up to MAX_COUNTED: `SELECT count(*) FROM (… LIMIT MAX_COUNTED + 1)`.

    Returns "many" when that takes longer than settings.COUNT_MILLISECONDS.
    """
    try:
        with statement_timeout(settings.COUNT_MILLISECONDS, NO_PARALLEL_WORKERS):
            number = rows.order_by().values("pk")[: MAX_COUNTED + 1].count()
    except StatementTimeout:
        return BoundedCount(MAX_COUNTED, "many")
    return BoundedCount.up_to(number)
