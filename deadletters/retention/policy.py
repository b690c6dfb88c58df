"""Retention of dead letters: DLQ_MAX_AGE_DAYS and DLQ_MAX_SIZE.

Letters are archived before they are removed. A letter's age counts from its last failure, or from when it was
closed. Letters in work stay whatever their age, as do open ones that are escalated, have an edit that waits
for approval, or are in a batch that will replay them; a batch that is not running holds its letters for
DLQ_MAX_AGE_DAYS after its last event. Operators are alerted a day before open letters expire, and when
untouched ones were archived; all can be restored (`letter_archive`).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from criticizer.db import prepared
from deadletters import alerts, transitions
from deadletters.models import LetterArchive
from deadletters.retention import letter_archive, orphan_files
from deadletters.retention.letter_archive import ArchiveFile
from deadletters.states import LetterAction
from deadletters.types import SYSTEM

log = structlog.get_logger(__name__)

IN_A_FILE = 500
FILES_A_RUN = 20  # the next run of maintenance continues
WALK_EVERY_SECONDS = 3_600
_walked_at: float | None = None

# Batches that will replay the letter: running ones, and others with a recent event.
_BATCHES = """
SELECT b.id FROM replay_items i JOIN replay_batches b ON b.id = i.batch_id
 WHERE i.letter_id = dead_letters.id AND i.status IN ('pending', 'ready')
   AND (b.status = 'running'
        OR b.status IN ('draft', 'awaiting', 'paused', 'stopped')
           AND (b.requested_at >= %(since)s
                OR EXISTS (SELECT FROM replay_batch_events e
                            WHERE e.batch_id = b.id AND e.created_at >= %(since)s)))"""
# New letters that are escalated, have an edit that waits, or are in a batch count as in work.
_SPARED = f"""
   AND NOT (is_escalated AND status IN ('new'))
   AND NOT EXISTS (SELECT FROM letter_edits e
                    WHERE e.letter_id = dead_letters.id AND e.status = 'requested')
   AND NOT EXISTS ({_BATCHES})"""
_NOT_POSTPONED = " AND (kept_until IS NULL OR kept_until < %(now)s)"
# The oldest letters from `before`, closed ones first; each half walks along an index of its own:
# dead_letters_closed, dead_letters_open.
_OLDEST = """
SELECT id FROM (
 (SELECT 1 AS turn, id, closed_at AS at FROM dead_letters
   WHERE status IN ('resolved', 'discarded') AND closed_at < %(before)s $SPARED
   ORDER BY closed_at, id LIMIT %(limit)s)
 UNION ALL
 (SELECT 2 AS turn, id, last_failure_at AS at FROM dead_letters
   WHERE status IN ('new') AND last_failure_at < %(before)s $SPARED
   ORDER BY last_failure_at, id LIMIT %(limit)s)) due
 ORDER BY turn, at, id LIMIT %(limit)s""".replace("$SPARED", _NOT_POSTPONED + _SPARED)
# Letters over the size. Closed ones first; of these, those of the requester with the most, so that one
# requester's failures do not push out those of others (guarantee G146); of these, the oldest.
_OF_THE_LARGEST = """
SELECT id FROM (
  SELECT dead_letters.id, status IN ('new') AS is_open, coalesce(closed_at, last_failure_at) AS at,
         row_number() OVER (PARTITION BY j.requested_by, status IN ('new')
                            ORDER BY coalesce(closed_at, last_failure_at) DESC, dead_letters.id DESC) AS place
    FROM dead_letters JOIN (SELECT id AS job_id, requested_by FROM jobs) j USING (job_id)
   WHERE status IN ('new', 'resolved', 'discarded')
     AND (%(postponed)s OR kept_until IS NULL OR kept_until < %(now)s) $SPARED) due
 ORDER BY is_open, place DESC, at, id LIMIT %(limit)s""".replace("$SPARED", _SPARED)
_EXCESS = "SELECT count(*) FROM dead_letters"
_LINES = """
SELECT l.id, l.row_version, l.status,
       jsonb_build_object(
         'letter', to_jsonb(l) - 'kept_until',
         'payload', (SELECT to_jsonb(p) FROM dead_letter_payloads p WHERE p.letter_id = l.id),
         'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.id), '[]')
                      FROM dead_letter_events e WHERE e.letter_id = l.id))::text AS line
  FROM dead_letters l WHERE l.id = ANY(%(ids)s) ORDER BY l.id"""
_HELD = """
SELECT id, status IN ('new') AND NOT EXISTS (
         SELECT FROM dead_letter_events e
          WHERE e.letter_id = dead_letters.id
            AND e.action NOT IN ('created', 'failed_again', 'escalated', 'archived')) AS untouched
  FROM dead_letters
 WHERE (id, row_version) IN (SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::int[]))
   AND status IN ('new', 'resolved', 'discarded') $SPARED ORDER BY id FOR UPDATE""".replace(
    "$SPARED", _SPARED
)
_DELETE_PAYLOADS = "DELETE FROM dead_letter_payloads WHERE letter_id = ANY(%(ids)s)"
_DELETE = "DELETE FROM dead_letters WHERE id = ANY(%(ids)s) RETURNING id"
_TODAY = "SELECT coalesce(sum(count), 0) FROM dead_letter_group_days WHERE day = %(day)s"
_EXPIRING = """
SELECT count(*) FROM dead_letters
 WHERE status IN ('new') AND last_failure_at < %(soon)s
   AND (last_failure_at >= %(since)s OR kept_until >= %(now)s)
   AND (kept_until IS NULL OR kept_until < %(now)s + %(ahead)s) $SPARED""".replace("$SPARED", _SPARED)
_UNTOUCHED = """
SELECT coalesce(sum(untouched_count), 0) FROM letter_archives
 WHERE created_at >= %(day)s AND created_at < %(day)s + interval '1 day'"""


def maintain() -> None:
    """Run the retention, and once an hour the removal of orphan files. Run by maintenance."""
    global _walked_at
    now = timezone.now()
    tell(now)
    enforce(now)
    letter_archive.reseal()
    if _walked_at is None or time.monotonic() - _walked_at >= WALK_EVERY_SECONDS:
        _walked_at = time.monotonic()
        orphan_files.remove(now)


def tell(now: datetime) -> None:
    """Alert once a day: too many dead letters today, or open ones that expire within a day."""
    day = f"{now:%Y-%m-%d}"
    today = int(prepared.value(_TODAY, {"day": now.date()}))
    if today > settings.DLQ_ALERT_PER_DAY:
        alerts.tell(
            "too_many",
            key=f"too-many:{day}",
            limit=settings.DLQ_ALERT_PER_DAY,
            count=today,
            day=day,
            path=alerts.page("deadlettergroup"),
        )
    since = _since(now)
    ahead = transitions.WARNED_AHEAD
    window = {"soon": since + ahead, "since": since, "now": now, "ahead": ahead}
    expiring = int(prepared.value(_EXPIRING, window))
    if expiring:
        alerts.tell(
            "expiring",
            key=f"expiring:{day}",
            count=expiring,
            path=alerts.page("deadletter"),
        )


def enforce(now: datetime) -> int:
    """Archive and remove letters over age or size; return how many. A run is bounded."""
    removed = 0
    for find in (_over_age, _over_size):
        due = find(now, IN_A_FILE * FILES_A_RUN - removed)
        for start in range(0, len(due), IN_A_FILE):
            gone = archive(due[start : start + IN_A_FILE], now)
            removed += gone
            if not gone:
                return removed  # all of them are locked or changed at this moment
    return removed


def _over_age(now: datetime, limit: int) -> list[int]:
    since = _since(now)
    asked = {"limit": limit, "now": now, "before": since, "since": since}
    return [int(row["id"]) for row in prepared.rows(_OLDEST, asked)]


def _over_size(now: datetime, limit: int) -> list[int]:
    excess = int(prepared.value(_EXCESS)) - settings.DLQ_MAX_SIZE
    size = min(limit, excess)
    if size <= 0:
        return []
    asked = {"limit": size, "now": now, "since": _since(now)}
    for postponed in (False, True):
        due = [int(row["id"]) for row in prepared.rows(_OF_THE_LARGEST, {**asked, "postponed": postponed})]
        if due:
            return due
    _tell_over_size(now, excess)
    return []


def batch_in_hand(letter_id: int) -> int | None:
    """Return a batch that keeps a letter from being removed, if there is one."""
    query = "".join(("SELECT (", _BATCHES, " LIMIT 1) FROM dead_letters WHERE id = %(letter)s"))
    found = prepared.value(query, {"letter": letter_id, "since": _since(timezone.now())})
    return int(found) if found is not None else None


def _since(now: datetime) -> datetime:
    """Return the time before which a letter, or an idle batch, is too old."""
    return now - timedelta(days=settings.DLQ_MAX_AGE_DAYS)


def archive(letter_ids: Collection[int], now: datetime) -> int:
    """Write letters into one file of the archive and remove them; return how many were removed.

    A letter that changed since stays; its line in the file is superfluous.
    """
    found = prepared.rows(_LINES, {"ids": list(letter_ids)})
    if not found:
        return 0
    plain = "".join(f"{row['line']}\n" for row in found).encode()
    file = letter_archive.write(plain, now)
    with transaction.atomic(), letter_archive.or_no_file(file.name):
        ids = [row["id"] for row in found]
        versions = [row["row_version"] for row in found]
        held = prepared.rows(_HELD, {"ids": ids, "versions": versions, "since": _since(now)})
        ids = [int(row["id"]) for row in held]
        untouched = sum(row["untouched"] for row in held)
        if ids:
            _remove(ids, untouched, file, now)
    if not ids:
        letter_archive.storage().delete(file.name)
    log.info("dead_letters_archived", letters=len(ids), untouched=untouched, archive=file.name)
    return len(ids)


def _remove(ids: list[int], untouched: int, file: ArchiveFile, now: datetime) -> None:
    archived = LetterArchive.objects.create(
        name=file.name,
        sha256=file.sha256,
        key_id=file.key_id,
        letter_count=len(ids),
        untouched_count=untouched,
        first_letter=ids[0],
        last_letter=ids[-1],
        created_at=now,
    )
    # A trigger refuses to delete a letter whose timeline does not say that it is archived.
    transitions.note_many(ids, LetterAction.ARCHIVED, SYSTEM, file.name, {"archive_id": archived.pk})
    prepared.rows(_DELETE_PAYLOADS, {"ids": ids})
    gone = prepared.rows(_DELETE, {"ids": ids})
    if len(gone) != len(ids):
        raise RuntimeError(f"{len(ids)} locked letters, {len(gone)} removed")
    if untouched:
        _tell_untouched(now)


def _tell_over_size(now: datetime, excess: int) -> None:
    """Alert once a day that DLQ_MAX_SIZE cannot be kept."""
    alerts.tell(
        "over_size",
        key=f"over-size:{now:%Y-%m-%d}",
        limit=settings.DLQ_MAX_SIZE,
        excess=excess,
        day=f"{now:%Y-%m-%d}",
        path=alerts.page("deadletter"),
    )


def _tell_untouched(now: datetime) -> None:
    """Alert when the day's first, tenth, hundredth … untouched letter was archived."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    count = int(prepared.value(_UNTOUCHED, {"day": day}))
    alerts.tell(
        "expired",
        key=f"expired:{day:%Y-%m-%d}:{10 ** (len(str(count)) - 1)}",
        count=count,
        day=f"{day:%Y-%m-%d}",
        path=alerts.page("letterarchive"),
    )
