"""Lifetime of copies of reviewed code: that of redacted artifacts (guarantee G172).

`COPIES` lists them all; each app adds its own in `apps.py`. The maintenance empties expired copies in
bounded batches; `reviews.artifacts.integrity` verifies that nothing is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.utils import timezone

from criticizer.db import prepared

log = structlog.get_logger(__name__)

BATCH = 500
BATCHES = 20  # of one table in one run; the next run continues
EVERY_SECONDS = 300.0
_ran_at: float | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Columns of a table, or its rows, that expire. All fields are SQL of our code, never input.

    `expired` is the condition for rows from before %(before)s that still hold a copy. `emptied` assigns the
    columns; without it the rows are deleted.
    """

    table: str
    expired: str
    emptied: str = ""
    key: str = "id"


COPIES: list[Copy] = []


def empty_expired() -> int:
    """Empty expired copies, at most every five minutes; return the number of rows.

    The maintenance calls it.
    """
    global _ran_at
    if _ran_at is not None and time.monotonic() - _ran_at < EVERY_SECONDS:
        return 0
    _ran_at = time.monotonic()
    return sum(_empty(copy) for copy in COPIES)


def _empty(copy: Copy) -> int:
    change = f"UPDATE {copy.table} SET {copy.emptied}" if copy.emptied else f"DELETE FROM {copy.table}"  # noqa: S608
    statement = f"""
        WITH due AS (SELECT {copy.key} AS due_key FROM {copy.table} WHERE {copy.expired}
                      LIMIT {BATCH} FOR UPDATE SKIP LOCKED),
        gone AS ({change} WHERE {copy.key} IN (SELECT due_key FROM due) RETURNING 1)
        SELECT count(*) FROM gone"""  # noqa: S608
    total = 0
    for _ in range(BATCHES):
        count = int(prepared.value(statement, {"before": _before()}))
        total += count
        if count < BATCH:
            break
    if total:
        log.info("copies_emptied", table=copy.table, rows=total)
    return total


def overdue(grace: timedelta) -> Iterator[tuple[str, int]]:
    """Yield each table with copies older than their lifetime and `grace`, and their number."""
    for copy in COPIES:
        count = f"SELECT count(*) FROM {copy.table} WHERE {copy.expired}"  # noqa: S608
        if rows := int(prepared.value(count, {"before": _before() - grace})):
            yield copy.table, rows


def _before() -> datetime:
    return timezone.now() - timedelta(days=settings.ARTIFACT_REDACTED_TTL_DAYS)
