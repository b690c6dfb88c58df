"""Removal of archive files that no row names, unless they may be the only copy.

A process that was killed before its commit leaves a file whose letters still exist, or are in another file.
A database that lost its rows, or another installation in the same place, leaves files that are needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import structlog
from django.conf import settings

from criticizer.db import prepared
from deadletters import alerts
from deadletters.models import OperatorAlert
from deadletters.retention import letter_archive

log = structlog.get_logger(__name__)

OPENED_A_RUN = 20  # the next run continues
KIND = "archive_orphan"

# Letters of a file that may be their only or newest copy. Letters of another database have the same ids, but
# other creation times. A file holds whole timelines: a database with the last event knows all of it.
_ONLY_HERE = """
SELECT count(*)
  FROM jsonb_to_recordset(%(letters)s::jsonb)
    AS f (id bigint, created_at timestamptz, row_version int, last_event bigint, last_at timestamptz)
 WHERE NOT EXISTS (SELECT FROM dead_letters l
                    WHERE l.id = f.id AND l.created_at = f.created_at AND l.row_version >= f.row_version)
   AND NOT EXISTS (SELECT FROM dead_letter_events e
                     JOIN dead_letter_events later ON later.letter_id = e.letter_id AND later.id > e.id
                     JOIN letter_archives a ON a.id = (later.context ->> 'archive_id')::bigint
                    WHERE e.id = f.last_event AND e.letter_id = f.id AND e.created_at = f.last_at
                      AND later.action = 'archived')"""


def remove(now: datetime) -> int:
    """Delete superfluous files older than DLQ_MAX_AGE_DAYS; return how many.

    Operators are alerted once of a file that stays, and it is not opened again.
    """
    known = set(OperatorAlert.objects.filter(kind=KIND).values_list("dedup_key", flat=True))
    old = letter_archive.unnamed(now - timedelta(days=settings.DLQ_MAX_AGE_DAYS))
    removed = 0
    for name in islice((name for name in old if _key(name) not in known), OPENED_A_RUN):
        if why := _why_needed(name):
            alerts.tell(KIND, key=_key(name), why=why)
        else:
            letter_archive.storage().delete(name)
            removed += 1
            log.warning("letter_archive_orphan_deleted", archive=name)
    return removed


def _why_needed(name: str) -> str:
    """Return why a file must stay, or ""."""
    try:
        letters = [_asked_of(entry) for entry in letter_archive.read_unnamed(name)]
    except letter_archive.ArchiveDamaged as error:
        return str(error)
    except (LookupError, TypeError, ValueError):
        return f"{name} does not hold dead letters"
    count = int(prepared.value(_ONLY_HERE, {"letters": json.dumps(letters)}))
    return f"{name} holds {count} dead letters without another copy in this database" if count else ""


def _asked_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    last = entry["events"][-1] if entry["events"] else {}
    letter = {name: entry["letter"][name] for name in ("id", "created_at", "row_version")}
    return {**letter, "last_event": last.get("id"), "last_at": last.get("created_at")}


def _key(name: str) -> str:
    return f"archive-orphan:{name}"[:255]
