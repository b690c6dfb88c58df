"""What the pages of the archive show: a file, its letters as they were, and which of them are back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from deadletters.models import DeadLetter, DeadLetterEvent, LetterArchive
from deadletters.retention import letter_archive
from deadletters.states import LetterAction

log = structlog.get_logger(__name__)

EVENTS_SHOWN = 200
_OPTIONS = DeadLetter._meta  # noqa: SLF001  documented API in spite of its name
_ACTIONS = dict(LetterAction.choices)
_RESTORE_FILE = (
    "Put the file back from a backup, under the same name, into letters/ of the data directory or into "
    "ARTIFACT_S3_BUCKET_LETTERS. If it was sealed with an older key, ARTIFACT_KEYS must hold that key."
)
_LATER = "The storage did not answer. Look at it, and at its credentials, then open this page again."


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
    """One letter of a file. `now` is the letter as it is in the console again, None while it is not."""

    letter: DeadLetter
    job: str
    address: str
    now: DeadLetter | None


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a timeline as it was archived."""

    action: str
    actor: str
    reason: str
    created_at: datetime | None

    @property
    def get_action_display(self) -> str:
        return str(_ACTIONS.get(self.action, self.action))


def opened(found: LetterArchive) -> Opened:
    """Read a file, or say what is wrong with it."""
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
    row = entry["letter"]
    known = [field for field in _OPTIONS.concrete_fields if field.attname in row]
    return DeadLetter(**{field.attname: field.to_python(row[field.attname]) for field in known})


def lines_of(found: LetterArchive, entries: Sequence[Mapping[str, Any]]) -> list[ArchivedLetter]:
    """Return letters of a file as its page lists them, in two queries."""
    letters = [as_letter(entry) for entry in entries]
    back = DeadLetter.objects.in_bulk([letter.pk for letter in letters])
    jobs = jobs_of([letter.job_id for letter in letters])
    return [
        ArchivedLetter(
            letter, jobs.get(letter.job_id, ""), address_of(found.pk, letter.pk), back.get(letter.pk)
        )
        for letter in letters
    ]


def jobs_of(job_ids: Sequence[int]) -> dict[int, str]:
    """Return what the jobs that there are call themselves."""
    model: Any = _OPTIONS.get_field("job").related_model
    return {pk: str(job) for pk, job in model.objects.in_bulk(job_ids).items()}


def events_of(entry: Mapping[str, Any]) -> list[Event]:
    """Return the timeline of a letter as it was archived, newest first."""
    newest = list(entry["events"])[::-1][:EVENTS_SHOWN]
    return [
        Event(event["action"], event["actor"], event["reason"], parse_datetime(event["created_at"]))
        for event in newest
    ]


def events_since(entry: Mapping[str, Any]) -> list[DeadLetterEvent]:
    """Return what happened to a letter since then: it was archived, restored, worked on; newest first."""
    last = max((int(event["id"]) for event in entry["events"]), default=0)
    since = DeadLetterEvent.objects.filter(letter_id=entry["letter"]["id"], pk__gt=last)
    return list(since.order_by("-pk")[:EVENTS_SHOWN])


def address_of(archive_id: int, letter_id: int | None = None) -> str:
    """Return where a file is shown, or one of its letters."""
    query = {"letter": letter_id} if letter_id is not None else None
    return reverse("admin:deadletters_letterarchive_change", args=[archive_id], query=query)


def address_of_letter(number: str) -> str:
    """Return where a removed letter is shown as it was archived last; "" where no file holds it."""
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return ""
    named = letter_archive.named(int(number))
    newest = LetterArchive.objects.filter(named).order_by("-pk").first() if named else None
    return address_of(newest.pk, int(number)) if newest else ""
