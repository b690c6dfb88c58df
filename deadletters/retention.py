"""How long dead letters stay: 7 days, 10,000 of them, archived before they go (specification 003, 3.2).

A letter's age counts from its last failure, or from when it was closed. What somebody works on
stays, whatever its age, and so does what waits for the approval of an edit. An edited letter is
closed and goes by itself: its next generation keeps its number, and edits stay as timelines do. What
nobody has touched is told of a day ahead and when it goes, and can be restored (`letter_archive`).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from criticizer import sql
from deadletters import alerts, letter_archive, moves
from deadletters.letter_archive import ArchiveFile
from deadletters.models import LetterArchive
from deadletters.results import SYSTEM
from deadletters.states import IN_WORK, LetterAction

log = structlog.get_logger(__name__)

IN_A_FILE = 500
FILES_A_ROUND = 20  # the maintenance has other things to do; the next round goes on
WARNED_AHEAD = timedelta(days=1)
WALK_EVERY_SECONDS = 3_600
_KEPT = [status.value for status in IN_WORK]
_walked_at: float | None = None

# Somebody works on a letter whose edit waits for approval, although its state is that of a new one.
_NO_EDIT = """
   AND NOT EXISTS (SELECT FROM letter_edits e
                    WHERE e.letter_id = dead_letters.id AND e.status = 'requested')"""
_OVER_AGE = f"""
SELECT id FROM dead_letters
 WHERE NOT (status = ANY(%(kept)s)) AND coalesce(closed_at, last_failure_at) < %(before)s
   AND (kept_until IS NULL OR kept_until < %(now)s){_NO_EDIT}
 ORDER BY coalesce(closed_at, last_failure_at), id LIMIT %(limit)s"""  # noqa: S608
# Those that are closed go first, then those that nobody has touched, oldest first.
_OVER_SIZE = f"""
SELECT id FROM dead_letters WHERE NOT (status = ANY(%(kept)s)){_NO_EDIT}
 ORDER BY kept_until > %(now)s, closed_at IS NULL, coalesce(closed_at, last_failure_at), id
 LIMIT %(limit)s"""  # noqa: S608
_EXCESS = "SELECT count(*) FROM dead_letters"
_LINES = """
SELECT l.id, l.row_version, l.status,
       jsonb_build_object(
         'letter', to_jsonb(l) - 'kept_until',
         'payload', (SELECT to_jsonb(p) FROM dead_letter_payloads p WHERE p.letter_id = l.id),
         'events', (SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.id), '[]')
                      FROM dead_letter_events e WHERE e.letter_id = l.id))::text AS line
  FROM dead_letters l WHERE l.id = ANY(%(ids)s) ORDER BY l.id"""
_HELD = f"""
SELECT id, status FROM dead_letters
 WHERE (id, row_version) IN (SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::int[]))
   AND NOT (status = ANY(%(kept)s)){_NO_EDIT} ORDER BY id FOR UPDATE"""  # noqa: S608
_DELETE_PAYLOADS = "DELETE FROM dead_letter_payloads WHERE letter_id = ANY(%(ids)s)"
_DELETE = "DELETE FROM dead_letters WHERE id = ANY(%(ids)s) RETURNING id"
_TODAY = "SELECT coalesce(sum(count), 0) FROM dead_letter_group_days WHERE day = %(day)s"
_EXPIRING = f"""
SELECT count(*) FROM dead_letters
 WHERE status = 'new' AND last_failure_at < %(soon)s AND last_failure_at >= %(before)s{_NO_EDIT}"""  # noqa: S608


def maintain() -> None:
    """Do a round of everything here, the walk once an hour. Run by the maintenance, every half minute."""
    global _walked_at
    now = timezone.now()
    tell(now)
    enforce(now)
    letter_archive.reseal()
    if _walked_at is None or time.monotonic() - _walked_at >= WALK_EVERY_SECONDS:
        _walked_at = time.monotonic()
        letter_archive.remove_orphans(now)


# -- what is told ------------------------------------------------------------------------------


def tell(now: datetime) -> None:
    """Alert once a day: too many dead letters today, or untouched ones that go within a day."""
    day = f"{now:%Y-%m-%d}"
    today = int(sql.value(_TODAY, {"day": now.date()}))
    if today > settings.DLQ_ALERT_PER_DAY:
        alerts.tell(
            "too_many",
            key=f"too-many:{day}",
            title=f"More than {settings.DLQ_ALERT_PER_DAY} dead letters today",
            text=f"{today} failures ended as dead letters on {day} so far.",
            path="/admin/deadletters/deadlettergroup/",
        )
    before = now - timedelta(days=settings.DLQ_MAX_AGE_DAYS)
    expiring = int(sql.value(_EXPIRING, {"soon": before + WARNED_AHEAD, "before": before}))
    if expiring:
        alerts.tell(
            "expiring",
            key=f"expiring:{day}",
            title=f"{expiring} dead letters that nobody has looked at expire within a day",
            text="They are archived then, and can be restored. Triage keeps them.",
            path="/admin/deadletters/deadletter/",
        )


# -- what goes ---------------------------------------------------------------------------------


def enforce(now: datetime) -> int:
    """Archive and remove what is over age or size; return how many letters went.

    A round is bounded: what is left goes in the next one.
    """
    removed = 0
    before = now - timedelta(days=settings.DLQ_MAX_AGE_DAYS)
    for _ in range(FILES_A_ROUND):
        due = _ids(_OVER_AGE, IN_A_FILE, before=before, now=now)
        if not due:
            excess = int(sql.value(_EXCESS)) - settings.DLQ_MAX_SIZE
            due = _ids(_OVER_SIZE, min(excess, IN_A_FILE), now=now) if excess > 0 else []
        if not due:
            break
        gone = archive(due, now)
        removed += gone
        if not gone:
            break  # somebody works on them this moment
    return removed


def _ids(query: str, limit: int, **parameters: Any) -> list[int]:
    found = sql.rows(query, {"kept": _KEPT, "limit": limit, **parameters})
    return [int(row["id"]) for row in found]


def archive(letter_ids: Collection[int], now: datetime) -> int:
    """Write letters into one file of the archive and remove them; return how many went.

    A letter that changed meanwhile stays, and its line in the file is one too many.
    """
    found = sql.rows(_LINES, {"ids": list(letter_ids)})
    if not found:
        return 0
    plain = "".join(f"{row['line']}\n" for row in found).encode()
    file = letter_archive.write(plain, now)
    with transaction.atomic(), letter_archive.or_no_file(file.name):
        held = sql.rows(
            _HELD,
            {
                "ids": [row["id"] for row in found],
                "versions": [row["row_version"] for row in found],
                "kept": _KEPT,
            },
        )
        ids = [int(row["id"]) for row in held]
        untouched = [int(row["id"]) for row in held if row["status"] == "new"]
        if ids:
            _remove(ids, untouched, file, now)
    if not ids:
        letter_archive.storage().delete(file.name)
    log.info("dead_letters_archived", letters=len(ids), untouched=len(untouched), archive=file.name)
    return len(ids)


def _remove(ids: list[int], untouched: list[int], file: ArchiveFile, now: datetime) -> None:
    LetterArchive.objects.create(
        name=file.name,
        sha256=file.sha256,
        key_id=file.key_id,
        letter_count=len(ids),
        first_letter=ids[0],
        last_letter=ids[-1],
    )
    sql.rows(_DELETE_PAYLOADS, {"ids": ids})
    gone = sql.rows(_DELETE, {"ids": ids})
    if len(gone) != len(ids):
        raise RuntimeError(f"{len(ids)} locked letters, {len(gone)} removed")
    moves.note_many(ids, LetterAction.ARCHIVED, SYSTEM, file.name)
    if untouched:
        alerts.tell(
            "expired",
            key=f"expired:{now:%Y-%m-%d}",
            title="Dead letters that nobody has looked at were archived",
            text=f"{len(untouched)} or more. `manage.py restore_letters` brings them back.",
            path="/admin/deadletters/deadlettergroup/",
        )
