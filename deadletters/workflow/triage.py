"""Record the category of a failure."""

from __future__ import annotations

from collections.abc import Collection

from django.utils import timezone

from criticizer.redaction import clean
from deadletters.categories import suggested_category
from deadletters.models import DeadLetter
from deadletters.states import BEFORE_REPLAY, Category, LetterAction, LetterStatus
from deadletters.transitions import MAX_TEXT, Step
from deadletters.types import Result, Tally

_TRIAGED_MANY = (LetterStatus.NEW, LetterStatus.TRIAGED)
_UNKNOWN = f"the category is not one of: {', '.join(Category.values)}"


def triage(
    letter_id: int, *, actor: str, category: str, note: str = "", row_version: int | None = None
) -> Result:
    """Record the category. Triaging a letter again later takes it back to this step."""
    done = f"triaged as {Category(category).label.lower()}" if category in Category.values else ""
    return _triage(actor, category, note).take(letter_id, BEFORE_REPLAY, row_version, done)


def triage_many(letter_ids: Collection[int], *, actor: str, category: str = "", note: str = "") -> Tally:
    """Triage the new letters of a set.

    Without a category, each gets the one that its error class suggests.
    """
    if category:
        return _triage(actor, category, note).take_many(letter_ids, _TRIAGED_MANY)
    classes = dict(DeadLetter.objects.filter(pk__in=letter_ids).values_list("pk", "error_class"))
    suggested: dict[Category, list[int]] = {}
    for pk in letter_ids:
        suggested.setdefault(suggested_category(classes.get(pk, "")), []).append(pk)
    total = Tally()
    for known, ids in suggested.items():
        total.add(_triage(actor, known.value, note).take_many(ids, _TRIAGED_MANY, of=len(letter_ids)))
    return total


def _triage(actor: str, category: str, note: str) -> Step:
    return Step(
        LetterStatus.TRIAGED,
        LetterAction.TRIAGED,
        actor,
        note,
        {
            "category": category,
            "triage_note": clean(note.strip(), MAX_TEXT),
            "triaged_by": actor[:255],
            "triaged_at": timezone.now(),
        },
        {"category": category},
        lambda _: "" if category in Category.values else _UNKNOWN,
    )
