"""What the steps share."""

from __future__ import annotations

from deadletters import transitions
from deadletters.models import DeadLetter
from deadletters.states import LetterAction
from deadletters.types import Result, Tally

MAX_TEXT = 4000


def refuse(letter: DeadLetter, actor: str, refused: Result) -> Result:
    """Leave a line in the timeline and hand the refusal on."""
    transitions.note(letter.pk, LetterAction.REFUSED, actor, refused.message)
    return refused


def add(total: Tally, part: Tally) -> None:
    """Count a part of a set into the whole."""
    total.done += part.done
    total.done_ids += part.done_ids
    for letter_id, reason in part.skipped_ids.items():
        total.skip(letter_id, reason)
