"""Resolve a dead letter, or discard it."""

from __future__ import annotations

from collections.abc import Collection

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.models import MIN_REASON_CHARS, DeadLetter
from deadletters.states import DISCARDABLE, LetterAction, LetterStatus
from deadletters.transitions import MAX_TEXT, Step
from deadletters.types import Result, Tally


def resolve(letter_id: int, *, actor: str, resolution: str, row_version: int | None = None) -> Result:
    """Close a verified letter with notes on how the incident ended."""
    return _resolution(actor, resolution).take(letter_id, (LetterStatus.VERIFYING,), row_version, "resolved")


def resolve_many(letter_ids: Collection[int], *, actor: str, resolution: str) -> Tally:
    """Close the verified letters of a set with the same notes; without notes it skips all."""
    return _resolution(actor, resolution).take_many(letter_ids, (LetterStatus.VERIFYING,))


def _resolution(actor: str, resolution: str) -> Step:
    def refuse(letter: DeadLetter) -> str:
        if not letter.verified_at:
            return "its effect has not been verified"
        if len(resolution.strip()) < MIN_REASON_CHARS:
            return "a resolution is required: how the incident ended"
        return ""

    changes = {"resolution": clean(resolution.strip(), MAX_TEXT), "resolved_by": actor[:255]}
    return Step(LetterStatus.RESOLVED, LetterAction.RESOLVED, actor, resolution, changes, refuse=refuse)


def discard(letter_id: int, *, actor: str, reason: str, row_version: int | None = None) -> Result:
    """Close a letter that is not being replayed; its job stays.

    Raises ValueError without a reason.
    """
    return _discard(actor, reason).take(letter_id, DISCARDABLE, row_version, "discarded")


def discard_many(letter_ids: Collection[int], *, actor: str, reason: str) -> Tally:
    """Discard the letters of a set that are not being replayed.

    Raises ValueError without a reason.
    """
    return _discard(actor, reason).take_many(letter_ids, DISCARDABLE)


def _discard(actor: str, reason: str) -> Step:
    transitions.require_reason(reason)
    return Step(LetterStatus.DISCARDED, LetterAction.DISCARDED, actor, reason)
