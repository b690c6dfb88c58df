"""Counts of jobs, attempts and deliveries for the dashboard, per five minutes and per hour.

Each interval is recounted from the rows by their time indexes, so a killed worker or a late row leaves no
lasting error. Attempts that end later than their interval are found by recounting it an hour later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import structlog
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from criticizer.db import prepared
from criticizer.db.query_limits import StatementTimeout, statement_timeout
from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock

log = structlog.get_logger(__name__)

FINE, COARSE = 300, 3600  # seconds of an interval
EVERY_SECONDS = 20  # two clusters do not count the same interval
AGAIN = timedelta(hours=1)  # recounted when an interval is over
AT_ONCE = timedelta(hours=1)  # of a long gap, in one transaction
ENOUGH_SECONDS = 0.5  # after which a run leaves the rest of a gap to the next one
BACKFILL = timedelta(days=7)
KEPT = {FINE: timedelta(days=3), COARSE: timedelta(days=100)}
LIMIT_MILLISECONDS = 20_000
_STEPS_PER_DOUBLING = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Times are counted in steps of a quarter of a doubling: sums of counts keep their percentiles.
_COUNT = """
INSERT INTO rollups (seconds, started_at, kind, label, number)
SELECT %(fine)s, date_bin(make_interval(secs => %(fine)s), at, 'epoch'::timestamptz), kind,
       CASE WHEN took IS NULL THEN label
            ELSE label || round(4 * ln(greatest(extract(epoch FROM took)::float8, 0.001)) / ln(2))::int END,
       count(*)
  FROM (
  SELECT 'jobs' AS kind, finished_at AS at, status AS label, NULL::interval AS took FROM jobs
   WHERE finished_at >= %(since)s AND finished_at < %(until)s
  UNION ALL
  SELECT 'latency', finished_at, 'review:', finished_at - created_at FROM jobs
   WHERE finished_at >= %(since)s AND finished_at < %(until)s AND status = 'succeeded'
  UNION ALL
  SELECT 'attempts', a.started_at, s.stage || ':' || a.outcome || ':' || a.error_class, NULL
    FROM attempts a JOIN stage_runs s ON s.id = a.stage_run_id
   WHERE a.started_at >= %(since)s AND a.started_at < %(until)s
  UNION ALL
  SELECT 'latency', a.started_at, s.stage || ':', a.finished_at - a.started_at
    FROM attempts a JOIN stage_runs s ON s.id = a.stage_run_id
   WHERE a.started_at >= %(since)s AND a.started_at < %(until)s AND a.outcome = 'succeeded'
  UNION ALL
  SELECT 'deliveries', created_at, status, NULL FROM deliveries
   WHERE created_at >= %(since)s AND created_at < %(until)s
) happened GROUP BY 1, 2, 3, 4"""
_FORGET = """
DELETE FROM rollups
 WHERE seconds = %(seconds)s AND started_at >= %(since)s AND started_at < %(until)s AND kind <> 'mark'"""
_SUM = """
INSERT INTO rollups (seconds, started_at, kind, label, number)
SELECT %(coarse)s, date_bin(make_interval(secs => %(coarse)s), started_at, 'epoch'::timestamptz),
       kind, label, sum(number)
  FROM rollups
 WHERE seconds = %(fine)s AND started_at >= %(since)s AND started_at < %(until)s AND kind <> 'mark'
 GROUP BY 1, 2, 3, 4"""
_PRUNE = "DELETE FROM rollups WHERE seconds = %(seconds)s AND started_at < %(before)s AND kind <> 'mark'"
_UNMARK = "DELETE FROM rollups WHERE seconds = 0"
_MARK = """
INSERT INTO rollups (seconds, started_at, kind, label, number)
VALUES (0, %(done)s, 'mark', '', %(now)s)"""


def roll_up() -> None:
    """Bring the counts up to date; log a failure of the database and never raise it.

    A long gap is counted in parts. With much to count in a gap it takes one part of it: other maintenance
    waits behind it.
    """
    enough = time.monotonic() + ENOUGH_SECONDS
    try:
        while _count_due() and time.monotonic() < enough:
            pass
    except (DatabaseError, StatementTimeout) as error:
        log.warning("rollup_failed", error=type(error).__name__)


def brought_up_to_date_at() -> datetime | None:
    """Return when the figures were last counted; None before the first time."""
    number = prepared.value("SELECT number FROM rollups WHERE seconds = 0 AND kind = 'mark'")
    return None if number is None else _EPOCH + timedelta(seconds=int(number))


def _count_due() -> bool:
    """Count what is due; return whether there is more."""
    with statement_timeout(LIMIT_MILLISECONDS), transaction.atomic():
        if not advisory_locks.take_now(Lock.ROLL_UP):
            return False
        now = timezone.now()
        mark = prepared.row("SELECT started_at, number FROM rollups WHERE seconds = 0 AND kind = 'mark'")
        edge = _floor(now, FINE)
        done = mark["started_at"] if mark else edge - BACKFILL
        if mark and done >= edge and now.timestamp() - mark["number"] < EVERY_SECONDS:
            return False
        is_new = done < edge
        # From the full hour: the sum of an hour needs all of its intervals, also those pruned since.
        since = _floor(done - AGAIN, COARSE) if is_new else done - timedelta(seconds=FINE)
        until = edge + timedelta(seconds=FINE) if done + AT_ONCE >= edge else done + AT_ONCE
        _recount(since, until)
        now_done = max(done, min(edge, until))
        if is_new:
            for seconds, kept in KEPT.items():
                _run(_PRUNE, {"seconds": seconds, "before": _floor(now - kept, COARSE)})
        _run(_UNMARK, {})
        _run(_MARK, {"done": now_done, "now": int(now.timestamp())})
        return now_done < edge


def _recount(since: datetime, until: datetime) -> None:
    _run(_FORGET, {"seconds": FINE, "since": since, "until": until})
    _run(_COUNT, {"fine": FINE, "since": since, "until": until})
    hours = {"since": _floor(since, COARSE), "until": _floor(until, COARSE) + timedelta(seconds=COARSE)}
    _run(_FORGET, {"seconds": COARSE, **hours})
    _run(_SUM, {"fine": FINE, "coarse": COARSE, **hours})


def _run(statement: str, values: Mapping[str, datetime | int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def _floor(moment: datetime, seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=moment.timestamp() // seconds * seconds)


def step_seconds(step: int) -> float:
    """Return the time in seconds that a step of a `latency` label stands for."""
    return float(2 ** (step / _STEPS_PER_DOUBLING))


def percentile_of(steps: Mapping[int, int], percent: int) -> float | None:
    """Return a percentile, in seconds, of counted steps; None of no counts.

    It is exact within an eighth of a doubling.
    """
    total, seen = sum(steps.values()), 0
    for step, number in sorted(steps.items()):
        seen += number
        if total and seen * 100 >= total * percent:
            return step_seconds(step)
    return None
