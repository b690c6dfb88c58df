"""How long dead letters stay: 7 days, 10,000 of them, archived before they go (specification 003, 3.2).

A letter's age counts from its last failure, or from when it was closed. What somebody works on
stays, whatever its age, and so does what waits for the approval of an edit. An edited letter is
closed and goes by itself: its next generation keeps its number, and edits stay as timelines do. What
nobody has touched is told of a day ahead and when it goes, and can be restored. A file of the archive
is written, read back and compared before a row is deleted, and goes when no row is.

    one file = Vault(ARTIFACT_KEYS) of lines of JSON, each a letter: its row, payload and timeline
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db import IntegrityError, transaction
from django.utils import timezone

from criticizer import sql
from criticizer.vault import Vault, VaultError
from deadletters import alerts, moves
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
_resealed_to = 0  # the archive with which the last round ended

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
_RESTORE = "INSERT INTO dead_letters SELECT * FROM jsonb_populate_record(NULL::dead_letters, %(row)s::jsonb)"
_RESTORE_PAYLOAD = """
INSERT INTO dead_letter_payloads
SELECT * FROM jsonb_populate_record(NULL::dead_letter_payloads, %(row)s::jsonb)"""
_TODAY = "SELECT coalesce(sum(count), 0) FROM dead_letter_group_days WHERE day = %(day)s"
_EXPIRING = f"""
SELECT count(*) FROM dead_letters
 WHERE status = 'new' AND last_failure_at < %(soon)s AND last_failure_at >= %(before)s{_NO_EDIT}"""  # noqa: S608


class ArchiveDamaged(Exception):
    """A file of the archive is gone, does not open, or is not what was written."""


@dataclass(slots=True)
class Restored:
    """What came back, and why the others did not: letter -> reason."""

    letters: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)


def maintain() -> None:
    """Do a round of everything here, the walk once an hour. Run by the maintenance, every half minute."""
    global _walked_at
    now = timezone.now()
    tell(now)
    enforce(now)
    reseal()
    if _walked_at is None or time.monotonic() - _walked_at >= WALK_EVERY_SECONDS:
        _walked_at = time.monotonic()
        remove_orphans(now)


def storage() -> Storage:
    """Return where the archive lies (settings.STORAGES["letter_archive"])."""
    return storages["letter_archive"]


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
    vault = Vault(settings.ARTIFACT_KEYS)
    name = _new_name(now)
    with _or_no_file(name):
        storage().save(name, ContentFile(vault.seal(plain)))
        if _opened(name) != plain:
            raise ArchiveDamaged(f"{name} does not read as it was written: nothing was removed")
    with transaction.atomic(), _or_no_file(name):
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
            _remove(ids, untouched, name, plain, vault.newest, now)
    if not ids:
        storage().delete(name)
    log.info("dead_letters_archived", letters=len(ids), untouched=len(untouched), archive=name)
    return len(ids)


def _new_name(now: datetime) -> str:
    # Without a capital: what mixes cases reads as a secret, and alerts and logs would hide the name.
    return f"{now:%Y/%m}/{now:%Y%m%d-%H%M%S}-{uuid4().hex}.jsonl.sealed"


@contextmanager
def _or_no_file(name: str) -> Iterator[None]:
    """Delete a file when the block fails. Not for a commit, which may have been made all the same."""
    try:
        yield
    except BaseException:
        storage().delete(name)
        raise


def _remove(
    ids: list[int], untouched: list[int], name: str, plain: bytes, key_id: str, now: datetime
) -> None:
    LetterArchive.objects.create(
        name=name,
        sha256=hashlib.sha256(plain).hexdigest(),
        key_id=key_id,
        letter_count=len(ids),
        first_letter=ids[0],
        last_letter=ids[-1],
    )
    sql.rows(_DELETE_PAYLOADS, {"ids": ids})
    gone = sql.rows(_DELETE, {"ids": ids})
    if len(gone) != len(ids):
        raise RuntimeError(f"{len(ids)} locked letters, {len(gone)} removed")
    moves.note_many(ids, LetterAction.ARCHIVED, SYSTEM, name)
    if untouched:
        alerts.tell(
            "expired",
            key=f"expired:{now:%Y-%m-%d}",
            title="Dead letters that nobody has looked at were archived",
            text=f"{len(untouched)} or more. `manage.py restore_letters` brings them back.",
            path="/admin/deadletters/deadlettergroup/",
        )


# -- the archive -------------------------------------------------------------------------------


def read(found: LetterArchive) -> Iterator[dict[str, Any]]:
    """Yield the letters of a file: `{"letter": …, "payload": …, "events": […]}`. Raises ArchiveDamaged."""
    plain = _opened(found.name)
    if hashlib.sha256(plain).hexdigest() != found.sha256:
        raise ArchiveDamaged(f"{found.name} does not match its digest")
    for line in plain.splitlines():
        yield json.loads(line)


def restore(found: LetterArchive, *, actor: str, reason: str, letters: Sequence[int] = ()) -> Restored:
    """Put letters of a file back as they were, all of them or those named.

    A letter that is there is skipped, and so is one whose job has another open letter of the
    stage. What is back stays for another DLQ_MAX_AGE_DAYS. Raises ArchiveDamaged.
    """
    until = timezone.now() + timedelta(days=settings.DLQ_MAX_AGE_DAYS)
    back = Restored()
    for entry in read(found):
        letter_id = int(entry["letter"]["id"])
        if letters and letter_id not in letters:
            continue
        try:
            with transaction.atomic():
                sql.rows(_RESTORE, {"row": json.dumps({**entry["letter"], "kept_until": until.isoformat()})})
                if entry["payload"] is not None:
                    sql.rows(_RESTORE_PAYLOAD, {"row": json.dumps(entry["payload"])})
                moves.note(letter_id, LetterAction.RESTORED, actor, reason, {"archive": found.name})
        except IntegrityError as error:
            back.skipped[letter_id] = _why_not(error)
        else:
            back.letters.append(letter_id)
    log.info("dead_letters_restored", letters=len(back.letters), archive=found.name, actor=actor)
    return back


def _why_not(error: IntegrityError) -> str:
    text = str(error)
    if "one_open_per_stage" in text:
        return "its job has another open letter of this stage"
    return "it is there already" if "pkey" in text else "its job or its group is gone"


def reseal(limit: int = 5) -> int:
    """Seal a few files with the newest key where an older one seals them; return how many.

    A round goes on where the last one ended: a file that cannot be resealed keeps no other back.
    """
    global _resealed_to
    vault = Vault(settings.ARTIFACT_KEYS)
    old = LetterArchive.objects.exclude(key_id=vault.newest).order_by("pk")
    part = list(old.filter(pk__gt=_resealed_to)[:limit])
    _resealed_to = part[-1].pk if len(part) == limit else 0
    return sum(_resealed(found, vault) for found in part)


def _resealed(old: LetterArchive, vault: Vault) -> bool:
    try:
        return _reseal(old, vault)
    except (FileNotFoundError, VaultError) as error:
        why = "is gone" if isinstance(error, FileNotFoundError) else "opens with none of ARTIFACT_KEYS"
        alerts.tell(
            "archive_damaged",
            key=f"archive-damaged:{old.pk}",
            title="A file of removed dead letters is damaged",
            text=f"{old.name}, with {old.letter_count} letters, {why}: restore the file from a backup.",
        )
    except Exception:
        log.exception("letter_archive_not_resealed", archive=old.name)
    return False


def _reseal(old: LetterArchive, vault: Vault) -> bool:
    with storage().open(old.name) as file:
        sealed = vault.reseal(file.read())
    name = f"{_stem(old.name)}~{vault.newest}.sealed"
    with _or_no_file(name):
        name = storage().save(name, ContentFile(sealed))
    # Whole under its new name before the row points to it, and the old one goes last.
    updated = LetterArchive.objects.filter(pk=old.pk, name=old.name).update(name=name, key_id=vault.newest)
    storage().delete(old.name if updated else name)
    return updated == 1


def remove_orphans(now: datetime) -> int:
    """Delete the files, older than DLQ_MAX_AGE_DAYS, of whose letters no row speaks; return how many.

    A process that was killed before its commit leaves one; its letters are in another file.
    """
    known = {_stem(name) for name in LetterArchive.objects.values_list("name", flat=True)}
    before = now - timedelta(days=settings.DLQ_MAX_AGE_DAYS)
    removed = 0
    for name in _files_in(""):
        if _stem(name) not in known and storage().get_modified_time(name) < before:
            storage().delete(name)
            removed += 1
            log.warning("letter_archive_orphan_deleted", archive=name)
    return removed


def _files_in(directory: str) -> Iterator[str]:
    try:
        directories, names = storage().listdir(directory)
    except FileNotFoundError:
        return  # nothing was archived yet
    yield from (f"{directory}{name}" for name in names)
    for inner in directories:
        yield from _files_in(f"{directory}{inner}/")


def _stem(name: str) -> str:
    """Return what a file keeps of its name under every key."""
    return name.removesuffix(".sealed").partition("~")[0]


def _opened(name: str) -> bytes:
    try:
        with storage().open(name) as file:
            return Vault(settings.ARTIFACT_KEYS).open(file.read())
    except (FileNotFoundError, VaultError) as error:
        raise ArchiveDamaged(f"{name}: {error}") from error
