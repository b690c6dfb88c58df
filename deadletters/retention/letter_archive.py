"""Archive files of removed dead letters: write, read, restore, reseal.

    one file = Vault(ARTIFACT_KEYS) of lines of JSON, each a letter: its row, payload and timeline

A file is written, read back and compared before a row is deleted, and deleted if no row is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from criticizer.db import prepared
from criticizer.security.encryption import Vault, VaultError
from deadletters import alerts, transitions
from deadletters.models import DeadLetter, DeadLetterEvent, LetterArchive
from deadletters.states import LetterAction
from deadletters.workflow import open_groups_of

log = structlog.get_logger(__name__)

_resealed_to = 0  # id of the last file of the last run

_RESTORE = """
INSERT INTO dead_letters SELECT * FROM jsonb_populate_recordset(NULL::dead_letters, %(rows)s::jsonb)"""
_RESTORE_PAYLOADS = """
INSERT INTO dead_letter_payloads
SELECT * FROM jsonb_populate_recordset(NULL::dead_letter_payloads, %(rows)s::jsonb)"""
_THERE = "it already exists"
_REFUSED_BY = {
    "dead_letters_one_open_per_stage": "its job has another open dead letter of this stage",
    "dead_letters_one_successor": "another dead letter is the next generation of the one before it",
    "dead_letters_pkey": _THERE,
    "dead_letter_payloads_pkey": _THERE,
}


class ArchiveDamaged(Exception):
    """A file of the archive is missing, does not open, or is not what was written."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A written file: its name in the storage, the digest of its lines, the id of its key."""

    name: str
    sha256: str
    key_id: str


@dataclass(slots=True)
class Restored:
    """Restored letters, and why others were skipped: letter -> reason."""

    letters: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)


def storage() -> Storage:
    """Return the archive's storage (settings.STORAGES["letter_archive"])."""
    return storages["letter_archive"]


def write(plain: bytes, now: datetime) -> ArchiveFile:
    """Seal lines into a new file and read it back. Raises ArchiveDamaged, leaving no file."""
    vault = Vault(settings.ARTIFACT_KEYS)
    name = _new_name(now)
    with or_no_file(name):
        storage().save(name, ContentFile(vault.seal(plain)))
        if _opened(name) != plain:
            raise ArchiveDamaged(f"{name} does not read back as written: nothing was removed")
    return ArchiveFile(name, _digest(plain), vault.newest)


def _new_name(now: datetime) -> str:
    # Lower case: redaction takes mixed case for a secret, and alerts and logs would hide the name.
    return f"{now:%Y/%m}/{now:%Y%m%d-%H%M%S}-{uuid4().hex}.jsonl.sealed"


@contextmanager
def or_no_file(name: str) -> Iterator[None]:
    """Delete a file if the block fails.

    Not for a block that commits: a commit may succeed although it raises.
    """
    try:
        yield
    except BaseException:
        storage().delete(name)
        raise


def read(found: LetterArchive) -> Iterator[dict[str, Any]]:
    """Yield the letters of a file: `{"letter": …, "payload": …, "events": […]}`.

    Raises ArchiveDamaged.
    """
    plain = _opened(found.name)
    if _digest(plain) != found.sha256:
        raise ArchiveDamaged(f"{found.name} is not what was written: its digest differs")
    yield from _letters(plain)


def read_unnamed(name: str) -> Iterator[dict[str, Any]]:
    """Yield the letters of a file without a row, unchecked by a digest. Raises ArchiveDamaged."""
    yield from _letters(_opened(name))


def read_file(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the letters of a local file, without the database. Raises ArchiveDamaged, OSError."""
    yield from _letters(_unsealed(path.read_bytes(), str(path)))


def _digest(plain: bytes) -> str:
    return hashlib.sha256(plain).hexdigest()


def holding(letter_id: int) -> Q:
    """Return the condition on files that hold a letter by its timeline, or else may by its id."""
    return named(letter_id) or Q(first_letter__lte=letter_id, last_letter__gte=letter_id)


def named(letter_id: int) -> Q:
    """Return the condition on files that a letter's timeline names; empty if it names none."""
    gone = DeadLetterEvent.objects.filter(letter_id=letter_id, action=LetterAction.ARCHIVED)
    condition = Q()
    for event in gone:
        condition |= _file_of(event)
    found = list(LetterArchive.objects.filter(condition).values_list("pk", flat=True)) if condition else []
    return Q(pk__in=found) if found else Q()


def _file_of(archived: DeadLetterEvent) -> Q:
    """Return the condition on files that finds the file of an `archived` event."""
    number = archived.context.get("archive_id")
    return Q(pk=number) if number else Q(name__startswith=_stem(archived.reason))


def _gone_since(found: LetterArchive, ids: Iterable[int]) -> dict[int, str]:
    """Return, by letter, the later file of letters that were restored and removed again."""
    events = DeadLetterEvent.objects.filter(letter_id__in=ids, action=LetterAction.ARCHIVED)
    last = events.order_by("letter_id", "-id").distinct("letter_id")
    where: dict[Q, int | None] = {}
    later = {}
    for event in last:
        file = _file_of(event)
        if file not in where:
            where[file] = LetterArchive.objects.filter(file).values_list("pk", flat=True).first()
        if (number := where[file]) not in {None, found.pk}:
            later[event.letter_id] = f"file {number} of the archive holds a newer copy"
    return later


def restore(found: LetterArchive, *, actor: str, reason: str, letters: Sequence[int] = ()) -> Restored:
    """Restore letters of a file as they were, all of them or those named.

    Skips letters that exist, that a later file holds, or whose job has another open letter of the stage.
    Restored letters stay for DLQ_MAX_AGE_DAYS; a resolved group opens with an open letter. Raises
    ArchiveDamaged, and ValueError without a reason.
    """
    transitions.require_reason(reason)
    wanted = {
        int(entry["letter"]["id"]): entry
        for entry in read(found)
        if not letters or entry["letter"]["id"] in letters
    }
    back = Restored(skipped=_gone_since(found, wanted))
    for letter_id in DeadLetter.objects.filter(pk__in=wanted).values_list("pk", flat=True):
        back.skipped[letter_id] = _THERE
    going = [entry for letter_id, entry in wanted.items() if letter_id not in back.skipped]
    if going and _put_back(found, going, actor, reason):
        # One of them cannot be restored: restored singly, each shows whether it is that one.
        for entry in going:
            if why := _put_back(found, [entry], actor, reason):
                back.skipped[int(entry["letter"]["id"])] = why
    back.letters = [letter_id for letter_id in wanted if letter_id not in back.skipped]
    log.info("dead_letters_restored", letters=len(back.letters), archive=found.name, actor=actor)
    return back


def _put_back(found: LetterArchive, entries: Sequence[Mapping[str, Any]], actor: str, reason: str) -> str:
    """Restore all of these letters or none; return why not, or an empty string."""
    until = transitions.postponed_retention()["kept_until"].isoformat()
    rows = [{**entry["letter"], "kept_until": until} for entry in entries]
    payloads = [entry["payload"] for entry in entries if entry["payload"] is not None]
    ids = [int(row["id"]) for row in rows]
    back = f"dead letter {ids[0]} is" if len(ids) == 1 else f"{len(ids)} dead letters are"
    try:
        with transaction.atomic():
            prepared.rows(_RESTORE, {"rows": json.dumps(rows)})
            prepared.rows(_RESTORE_PAYLOADS, {"rows": json.dumps(payloads)})
            _count_back(found, ids)
            facts = {"archive": found.name, "archive_id": found.pk}
            transitions.note_many(ids, LetterAction.RESTORED, actor, reason, facts)
            open_groups_of(ids, actor=actor, reason=f"{back} back from the archive: {reason}")
    except IntegrityError as error:
        return _why_not(error)
    return ""


def _count_back(found: LetterArchive, ids: Sequence[int]) -> None:
    """Count restored letters of a file, each once."""
    before = DeadLetterEvent.objects.filter(
        letter_id__in=ids, action=LetterAction.RESTORED, context__archive_id=found.pk
    )
    count = len(set(ids) - set(before.values_list("letter_id", flat=True)))
    LetterArchive.objects.filter(pk=found.pk).update(restored_count=F("restored_count") + count)


def _why_not(error: IntegrityError) -> str:
    diagnosis = getattr(error.__cause__, "diag", None)
    return _REFUSED_BY.get(getattr(diagnosis, "constraint_name", ""), "its job or its group no longer exists")


def reseal(limit: int = 5) -> int:
    """Reseal a few files that have an older key with the newest one; return how many.

    A run continues where the last one ended, so that a file that fails does not block the others.
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
        why = "is missing" if isinstance(error, FileNotFoundError) else "opens with none of ARTIFACT_KEYS"
        alerts.tell(
            "archive_damaged",
            key=f"archive-damaged:{old.pk}",
            name=old.name,
            letters=old.letter_count,
            why=why,
        )
    except Exception:
        log.exception("letter_archive_not_resealed", archive=old.name)
    return False


def _reseal(old: LetterArchive, vault: Vault) -> bool:
    with storage().open(old.name) as file:
        sealed = vault.reseal(file.read())
    name = f"{_stem(old.name)}~{vault.newest}.sealed"
    with or_no_file(name):
        name = storage().save(name, ContentFile(sealed))
        if _digest(_opened(name)) != old.sha256:
            raise ArchiveDamaged(f"{name} does not read back as written: {old.name} stays")
    # The new file is complete before the row points to it; the old one is deleted last.
    updated = LetterArchive.objects.filter(pk=old.pk, name=old.name).update(name=name, key_id=vault.newest)
    storage().delete(old.name if updated else name)
    return updated == 1


def unnamed(before: datetime) -> Iterator[str]:
    """Yield the files older than `before` that no row names, under any key."""
    known = {_stem(name) for name in LetterArchive.objects.values_list("name", flat=True)}
    for name in _files_in(""):
        if _stem(name) not in known and storage().get_modified_time(name) < before:
            yield name


def _files_in(directory: str) -> Iterator[str]:
    try:
        directories, names = storage().listdir(directory)
    except FileNotFoundError:
        return  # nothing was archived yet
    yield from (f"{directory}{name}" for name in names)
    for inner in directories:
        yield from _files_in(f"{directory}{inner}/")


def _stem(name: str) -> str:
    """Return the part of a file's name that resealing keeps."""
    return name.removesuffix(".sealed").partition("~")[0]


def _opened(name: str) -> bytes:
    try:
        with storage().open(name) as file:
            sealed = file.read()
    except FileNotFoundError as error:
        raise ArchiveDamaged(f"{name} is missing") from error
    return _unsealed(sealed, name)


def _letters(plain: bytes) -> Iterator[dict[str, Any]]:
    for line in plain.splitlines():
        yield json.loads(line)


def _unsealed(sealed: bytes, name: str) -> bytes:
    try:
        return Vault(settings.ARTIFACT_KEYS).open(sealed)
    except VaultError as error:
        raise ArchiveDamaged(f"{name} opens with none of ARTIFACT_KEYS") from error
