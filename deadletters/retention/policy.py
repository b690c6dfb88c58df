"""How long dead letters stay: 7 days, 10,000 of them, archived before they go (specification 003, 3.2).

A letter's age counts from its last failure, or from when it was closed. What somebody works on
stays, whatever its age, and so does what is open and escalated, waits for the approval of an edit,
or belongs to a batch that is going to replay it. A batch that nobody runs holds its letters for
DLQ_MAX_AGE_DAYS since something was done with it. An edited letter is closed and goes by itself: its
next generation keeps its number, and edits stay as timelines do. Open letters are told of a day
ahead, those that nobody has touched also when they go; all can be restored (`letter_archive`).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from criticizer.db import prepared
from deadletters import alerts, transitions
from deadletters.models import LetterArchive
from deadletters.retention import letter_archive, orphan_files
from deadletters.retention.letter_archive import ArchiveFile
from deadletters.states import CLOSED_LETTER, BatchStatus, ItemStatus, LetterAction, LetterStatus
from deadletters.types import SYSTEM

log = structlog.get_logger(__name__)

IN_A_FILE = 500
FILES_A_ROUND = 20  # the maintenance has other things to do; the next round goes on
WALK_EVERY_SECONDS = 3_600
_FOR_EVER = datetime.max.replace(tzinfo=UTC)
_BEFORE_OR_STOPPED = (BatchStatus.DRAFT, BatchStatus.AWAITING, BatchStatus.PAUSED, BatchStatus.STOPPED)
_NEW, _CLOSED = prepared.sql_list([LetterStatus.NEW]), prepared.sql_list(CLOSED_LETTER)
# What is in the timeline of a letter that nobody has touched.
_UNTOUCHED_BY = prepared.sql_list(
    [LetterAction.CREATED, LetterAction.FAILED_AGAIN, LetterAction.ESCALATED, LetterAction.ARCHIVED]
)
_walked_at: float | None = None

# A batch has its letters in hand while a worker goes through it. Before that, or stopped, it does
# for as long as anybody does something with it.
_IN_HAND = f"""
SELECT b.id FROM replay_items i JOIN replay_batches b ON b.id = i.batch_id
 WHERE i.letter_id = dead_letters.id AND i.status IN {
    prepared.sql_list([ItemStatus.PENDING, ItemStatus.READY])
}
   AND (b.status = 'running'
        OR b.status IN {prepared.sql_list(_BEFORE_OR_STOPPED)}
           AND (b.requested_at >= %(since)s
                OR EXISTS (SELECT FROM replay_batch_events e
                            WHERE e.batch_id = b.id AND e.created_at >= %(since)s)))"""  # noqa: S608
# Somebody works on a letter that has an edit or a batch, although its state is that of a new one. One
# that is escalated waits for somebody.
_SPARED = f"""
   AND NOT (is_escalated AND status IN {_NEW})
   AND NOT EXISTS (SELECT FROM letter_edits e
                    WHERE e.letter_id = dead_letters.id AND e.status = 'requested')
   AND NOT EXISTS ({_IN_HAND})"""
_NOT_BACK = "(kept_until IS NULL OR kept_until < %(now)s)"  # restored, reopened or let go of late


def _oldest(which: str) -> str:
    """Return the query for the oldest letters from `before`: closed ones, then those nobody works on.

    Each half walks along its own index: dead_letters_closed, dead_letters_open.
    """
    halves = [
        f"""(SELECT {turn} AS turn, id, {at} AS at FROM dead_letters
              WHERE status IN {statuses} AND {at} < %(before)s AND {which}{_SPARED}
              ORDER BY {at}, id LIMIT %(limit)s)"""  # noqa: S608
        for turn, statuses, at in ((1, _CLOSED, "closed_at"), (2, _NEW, "last_failure_at"))
    ]
    return f"SELECT id FROM ({' UNION ALL '.join(halves)}) due ORDER BY turn, at, id LIMIT %(limit)s"  # noqa: S608


_OLDEST, _OLDEST_AND_BACK = _oldest(_NOT_BACK), _oldest("true")
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
SELECT id, status IN {_NEW} AND NOT EXISTS (
         SELECT FROM dead_letter_events e
          WHERE e.letter_id = dead_letters.id AND e.action NOT IN {_UNTOUCHED_BY}) AS untouched
  FROM dead_letters
 WHERE (id, row_version) IN (SELECT * FROM unnest(%(ids)s::bigint[], %(versions)s::int[]))
   AND (status IN {_NEW} OR status IN {_CLOSED}){_SPARED} ORDER BY id FOR UPDATE"""  # noqa: S608
_DELETE_PAYLOADS = "DELETE FROM dead_letter_payloads WHERE letter_id = ANY(%(ids)s)"
_DELETE = "DELETE FROM dead_letters WHERE id = ANY(%(ids)s) RETURNING id"
_TODAY = "SELECT coalesce(sum(count), 0) FROM dead_letter_group_days WHERE day = %(day)s"
_EXPIRING = f"""
SELECT count(*) FROM dead_letters
 WHERE status IN {_NEW} AND last_failure_at < %(soon)s
   AND (last_failure_at >= %(since)s OR kept_until >= %(now)s)
   AND (kept_until IS NULL OR kept_until < %(now)s + %(ahead)s){_SPARED}"""  # noqa: S608
_UNTOUCHED = """
SELECT coalesce(sum(untouched_count), 0) FROM letter_archives
 WHERE created_at >= %(day)s AND created_at < %(day)s + interval '1 day'"""


def maintain() -> None:
    """Do a round of everything here, the walk once an hour. Run by the maintenance, every half minute."""
    global _walked_at
    now = timezone.now()
    tell(now)
    enforce(now)
    letter_archive.reseal()
    if _walked_at is None or time.monotonic() - _walked_at >= WALK_EVERY_SECONDS:
        _walked_at = time.monotonic()
        orphan_files.remove(now)


# -- what is told ------------------------------------------------------------------------------


def tell(now: datetime) -> None:
    """Alert once a day: too many dead letters today, or open ones that go within a day."""
    day = f"{now:%Y-%m-%d}"
    today = int(prepared.value(_TODAY, {"day": now.date()}))
    if today > settings.DLQ_ALERT_PER_DAY:
        alerts.tell(
            "too_many",
            key=f"too-many:{day}",
            title=f"More than {settings.DLQ_ALERT_PER_DAY} dead letters today",
            text=f"{today} failures ended as dead letters on {day} so far.",
            path=reverse("admin:deadletters_deadlettergroup_changelist"),
        )
    since = _since(now)
    soon = {
        "soon": since + transitions.WARNED_AHEAD,
        "since": since,
        "now": now,
        "ahead": transitions.WARNED_AHEAD,
    }
    expiring = int(prepared.value(_EXPIRING, soon))
    if expiring:
        alerts.tell(
            "expiring",
            key=f"expiring:{day}",
            title=f"{expiring} dead letters that nobody works on expire within a day",
            text="They are archived then, and can be restored. Triage keeps them.",
            path=reverse("admin:deadletters_deadletter_changelist"),
        )


# -- what goes ---------------------------------------------------------------------------------


def enforce(now: datetime) -> int:
    """Archive and remove what is over age or size; return how many letters went.

    A round is bounded: what is left goes in the next one.
    """
    removed = 0
    for find in (_over_age, _over_size):
        due = find(now, IN_A_FILE * FILES_A_ROUND - removed)
        for start in range(0, len(due), IN_A_FILE):
            gone = archive(due[start : start + IN_A_FILE], now)
            removed += gone
            if not gone:
                return removed  # somebody works on them this moment
    return removed


def _over_age(now: datetime, limit: int) -> list[int]:
    return _ids(_OLDEST, limit, now, before=_since(now))


def _over_size(now: datetime, limit: int) -> list[int]:
    excess = int(prepared.value(_EXCESS)) - settings.DLQ_MAX_SIZE
    size = min(limit, excess)
    if size <= 0:
        return []
    due = _ids(_OLDEST, size, now) or _ids(_OLDEST_AND_BACK, size, now)
    if not due:
        _tell_over_size(now, excess)
    return due


def batch_in_hand(letter_id: int) -> int | None:
    """Return the batch for whose sake a letter stays, if there is one."""
    asked = {"letter": letter_id, "since": _since(timezone.now())}
    found = prepared.value(f"SELECT ({_IN_HAND} LIMIT 1) FROM dead_letters WHERE id = %(letter)s", asked)  # noqa: S608
    return int(found) if found is not None else None


def _since(now: datetime) -> datetime:
    """Return before when a letter, or a batch that nobody runs, is too old."""
    return now - timedelta(days=settings.DLQ_MAX_AGE_DAYS)


def _ids(query: str, limit: int, now: datetime, before: datetime = _FOR_EVER) -> list[int]:
    asked = {"limit": limit, "now": now, "before": before, "since": _since(now)}
    return [int(row["id"]) for row in prepared.rows(query, asked)]


def archive(letter_ids: Collection[int], now: datetime) -> int:
    """Write letters into one file of the archive and remove them; return how many went.

    A letter that changed meanwhile stays, and its line in the file is one too many.
    """
    found = prepared.rows(_LINES, {"ids": list(letter_ids)})
    if not found:
        return 0
    plain = "".join(f"{row['line']}\n" for row in found).encode()
    file = letter_archive.write(plain, now)
    with transaction.atomic(), letter_archive.or_no_file(file.name):
        held = prepared.rows(
            _HELD,
            {
                "ids": [row["id"] for row in found],
                "versions": [row["row_version"] for row in found],
                "since": _since(now),
            },
        )
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
    # The database lets a letter go only when its timeline says so.
    transitions.note_many(ids, LetterAction.ARCHIVED, SYSTEM, file.name, {"archive_id": archived.pk})
    prepared.rows(_DELETE_PAYLOADS, {"ids": ids})
    gone = prepared.rows(_DELETE, {"ids": ids})
    if len(gone) != len(ids):
        raise RuntimeError(f"{len(ids)} locked letters, {len(gone)} removed")
    if untouched:
        _tell_untouched(now)


def _tell_over_size(now: datetime, excess: int) -> None:
    """Alert once a day of a limit that cannot be kept."""
    alerts.tell(
        "over_size",
        key=f"over-size:{now:%Y-%m-%d}",
        title=f"More than {settings.DLQ_MAX_SIZE} dead letters, and none of them may be removed",
        text=f"{excess} too many on {now:%Y-%m-%d}: somebody works on each that is left, or it is escalated, "
        "has an edit that waits, or is in a batch. Resolve or discard some, or cancel what nobody needs.",
        path=reverse("admin:deadletters_deadletter_changelist"),
    )


def _tell_untouched(now: datetime) -> None:
    """Alert of the day's first letter that nobody had looked at, of the tenth, the hundredth and so on."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    count = int(prepared.value(_UNTOUCHED, {"day": day}))
    alerts.tell(
        "expired",
        key=f"expired:{day:%Y-%m-%d}:{10 ** (len(str(count)) - 1)}",
        title="Dead letters that nobody has looked at were archived",
        text=f"{count} on {day:%Y-%m-%d} so far. The archive's page brings them back.",
        path=reverse("admin:deadletters_letterarchive_changelist"),
    )
