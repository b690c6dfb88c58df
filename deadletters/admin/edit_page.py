"""What the pages of edits show: the difference, what is locked and why, and where a letter lives on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, LetterEdit
from deadletters.states import EditStatus
from deadletters.types import Change, DataField


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One line of a field. `state` is kept, added or removed."""

    text: str
    state: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What becomes of one field."""

    label: str
    lines: Sequence[FieldDifference]
    added: int
    removed: int


def difference(data: Sequence[DataField], change: Change) -> list[Difference]:
    """Return each field with the lines it keeps, loses and gets, in this order."""
    labels = {field.name: field.label for field in data}
    found = []
    for name, after in change.after.items():
        kept = [FieldDifference(text, "kept") for text in change.before.get(name, ()) if text in after]
        gone = [FieldDifference(text, "removed") for text in change.removed(name)]
        new = [FieldDifference(text, "added") for text in change.added(name)]
        label = labels.get(name, name.replace("_", " ").capitalize())
        found.append(Difference(label, [*gone, *new, *kept], len(new), len(gone)))
    return found


def digest(change: Change) -> str:
    """Return what tells whether a difference is the one that was looked at."""
    text = json.dumps([dict(change.before), dict(change.after)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def lineage(letter: DeadLetter) -> dict[str, Any]:
    """Return the edit that waits, and the generations before and after a letter, for its page."""
    asked = list(letter.edits.filter(status__in=(EditStatus.REQUESTED, EditStatus.APPLIED)))
    successor = letter.generations.values_list("pk", flat=True).first()
    parent = letter.parent_id
    return {
        "waiting_edit": _first(asked, EditStatus.REQUESTED),
        "applied_edit": _first(asked, EditStatus.APPLIED),
        "successor": successor,
        "successor_address": _address(successor) if successor else "",
        # The one before may be in the archive.
        "parent_address": _address(parent)
        if parent and DeadLetter.objects.filter(pk=parent).exists()
        else "",
        "may_edit": not edit_requests.why_not(letter),
    }


def _first(found: Sequence[LetterEdit], status: EditStatus) -> LetterEdit | None:
    return next((edit for edit in found if edit.status == status), None)


def _address(letter_id: int) -> str:
    return reverse("admin:deadletters_deadletter_change", args=[letter_id])
