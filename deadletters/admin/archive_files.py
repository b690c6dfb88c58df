"""The files of the archive as its pages show them: their letters, timelines and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.urls import reverse

from criticizer.admin_site.search_query import row_number
from deadletters.models import DeadLetter, DeadLetterEvent, LetterArchive
from deadletters.retention import letter_archive

log = structlog.get_logger(__name__)

EVENTS_SHOWN = 200
_RESTORE_FILE = (
    "Put the file back from a backup, under the same name, into letters/ of the data directory or into "
    "ARTIFACT_S3_BUCKET_LETTERS. If it was sealed with an older key, ARTIFACT_KEYS must hold that key."
)
_LATER = "The storage did not answer. Check the storage and its credentials, then open this page again."


@dataclass(frozen=True, slots=True)
class Opened:
    """A file's letters, or why it cannot be read and what to do."""

    entries: Sequence[Mapping[str, Any]]
    problem: str = ""
    advice: str = ""

    @property
    def ids(self) -> list[int]:
        return [int(entry["letter"]["id"]) for entry in self.entries]


@dataclass(frozen=True, slots=True)
class ArchivedLetter:
    """One letter of a file. `now` is the restored letter, None while it is not restored."""

    letter: DeadLetter
    job: str
    address: str
    now: DeadLetter | None


def opened(found: LetterArchive) -> Opened:
    """Read a file; on failure return the problem and the advice."""
    try:
        return Opened(list(letter_archive.read(found)))
    except letter_archive.ArchiveDamaged as error:
        return Opened((), str(error), _RESTORE_FILE)
    except Exception as error:  # each kind of storage has errors of its own
        log.exception("letter_archive_unread", archive=found.name)
        why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        return Opened((), f"{found.name} cannot be read: {why}", _LATER)


def entry_of(file: Opened, letter_id: int) -> Mapping[str, Any] | None:
    return next((entry for entry in file.entries if entry["letter"]["id"] == letter_id), None)


def as_letter(entry: Mapping[str, Any]) -> DeadLetter:
    """Return a letter of a file as a row that is not in the database."""
    letter: DeadLetter = _unstored(DeadLetter, entry["letter"])
    return letter


def _unstored(model: type[Any], stored: Mapping[str, Any]) -> Any:
    fields = model._meta.concrete_fields  # noqa: SLF001  documented API in spite of its name
    known = [field for field in fields if field.attname in stored]
    return model(**{field.attname: field.to_python(stored[field.attname]) for field in known})


def lines_of(found: LetterArchive, entries: Sequence[Mapping[str, Any]]) -> list[ArchivedLetter]:
    """Return letters of a file as its page lists them, in two queries."""
    letters = [as_letter(entry) for entry in entries]
    back = DeadLetter.objects.in_bulk([letter.pk for letter in letters])
    jobs = jobs_of([letter.job_id for letter in letters])
    return [
        ArchivedLetter(
            letter, jobs.get(letter.job_id, ""), file_address(found.pk, letter.pk), back.get(letter.pk)
        )
        for letter in letters
    ]


def jobs_of(job_ids: Sequence[int]) -> dict[int, str]:
    """Return the names of the jobs that exist."""
    model: Any = DeadLetter.job.field.related_model
    return {pk: str(job) for pk, job in model.objects.in_bulk(job_ids).items()}


def events_of(entry: Mapping[str, Any]) -> list[DeadLetterEvent]:
    """Return the timeline of a letter as it was archived, newest first."""
    return [_unstored(DeadLetterEvent, event) for event in list(entry["events"])[::-1][:EVENTS_SHOWN]]


def events_since(entry: Mapping[str, Any]) -> list[DeadLetterEvent]:
    """Return the events of a letter since it was archived, newest first."""
    last = max((int(event["id"]) for event in entry["events"]), default=0)
    since = DeadLetterEvent.objects.filter(letter_id=entry["letter"]["id"], pk__gt=last)
    return list(since.order_by("-pk")[:EVENTS_SHOWN])


def file_address(archive_id: int, letter_id: int | None = None) -> str:
    """Return where a file is shown, or one of its letters."""
    query = {"letter": letter_id} if letter_id is not None else None
    return reverse("admin:deadletters_letterarchive_change", args=[archive_id], query=query)


def address_of_letter(number: str) -> str:
    """Return the page of a removed letter in its newest file; "" where no file holds it."""
    letter_id = row_number(number)
    named = letter_archive.named(letter_id) if letter_id is not None else None
    newest = LetterArchive.objects.filter(named).order_by("-pk").first() if named else None
    return file_address(newest.pk, letter_id) if newest else ""
