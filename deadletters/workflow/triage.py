"""Say what kind of failure it is (000, 8.5 item 1)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.categories import suggested_category
from deadletters.models import DeadLetter
from deadletters.states import BEFORE_REPLAY, Category, LetterAction, LetterStatus
from deadletters.types import Result, Tally
from deadletters.workflow.base import MAX_TEXT, add, refuse

log = structlog.get_logger(__name__)

_TRIAGEABLE = BEFORE_REPLAY


def triage(
    letter_id: int, *, actor: str, category: str, note: str = "", row_version: int | None = None
) -> Result:
    """Say what kind of failure it is. Triaging again later takes the letter back to this step."""
    with transaction.atomic():
        letter = transitions.locked(letter_id)
        refused = transitions.refusal(letter, _TRIAGEABLE, row_version) or _category_refusal(category)
        if refused:
            return refuse(letter, actor, refused)
        changes = _triage_changes(actor, category, note)
        transitions.move(
            letter,
            LetterStatus.TRIAGED,
            LetterAction.TRIAGED,
            actor,
            note,
            context={"category": category},
            **changes,
        )
    return Result(True, f"triaged as {Category(category).label.lower()}")


def triage_many(letter_ids: Collection[int], *, actor: str, category: str = "", note: str = "") -> Tally:
    """Triage the new letters of a set. Without a category, each by what its class suggests."""
    if category:
        if refused := _category_refusal(category):
            raise ValueError(refused.message)
        return _triage_as(letter_ids, actor, category, note, of=len(letter_ids))
    suggested: dict[str, list[int]] = {}
    for pk, error_class in DeadLetter.objects.filter(pk__in=letter_ids).values_list("pk", "error_class"):
        suggested.setdefault(suggested_category(error_class).value, []).append(pk)
    total = Tally("triaged")
    for kind, ids in suggested.items():
        add(total, _triage_as(ids, actor, kind, note, of=len(letter_ids)))
    for missing in set(letter_ids) - {pk for ids in suggested.values() for pk in ids}:
        total.skip(missing, "it does not exist any more")
    return total


def _triage_as(letter_ids: Collection[int], actor: str, category: str, note: str, *, of: int) -> Tally:
    return transitions.move_many(
        letter_ids,
        (LetterStatus.NEW, LetterStatus.TRIAGED),
        LetterStatus.TRIAGED,
        LetterAction.TRIAGED,
        actor,
        note,
        verb="triaged",
        changes=_triage_changes(actor, category, note),
        context={"category": category},
        of=of,
    )


def _triage_changes(actor: str, category: str, note: str) -> dict[str, Any]:
    return {
        "category": category,
        "triage_note": clean(note.strip(), MAX_TEXT),
        "triaged_by": actor[:255],
        "triaged_at": timezone.now(),
    }


def _category_refusal(category: str) -> Result | None:
    known = ", ".join(Category.values)
    return None if category in Category.values else Result(False, f"the category is one of {known}")
