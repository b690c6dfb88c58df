"""Resolve a letter, or give it up (000, 8.5 item 6)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from django.db import transaction

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.models import MIN_WORDS, DeadLetter
from deadletters.states import DISCARDABLE, LetterAction, LetterStatus
from deadletters.types import Result, Tally
from deadletters.workflow.base import MAX_TEXT, refuse

log = structlog.get_logger(__name__)


def resolve(letter_id: int, *, actor: str, resolution: str, row_version: int | None = None) -> Result:
    """Close a verified letter with notes on how the incident ended."""
    with transaction.atomic():
        letter = transitions.locked(letter_id)
        refused = transitions.refusal(letter, (LetterStatus.VERIFYING,), row_version)
        refused = refused or _unverified(letter) or _resolution_refusal(resolution)
        if refused:
            return refuse(letter, actor, refused)
        changes = _resolution_changes(actor, resolution)
        transitions.move(letter, LetterStatus.RESOLVED, LetterAction.RESOLVED, actor, resolution, **changes)
    return Result(True, "resolved")


def resolve_many(letter_ids: Collection[int], *, actor: str, resolution: str) -> Tally:
    """Close the verified letters of a set with the same notes. Raises ValueError without notes."""
    if refused := _resolution_refusal(resolution):
        raise ValueError(refused.message)

    def refuse(letter: DeadLetter) -> str:
        found = _unverified(letter)
        return found.message if found else ""

    return transitions.move_many(
        letter_ids,
        (LetterStatus.VERIFYING,),
        LetterStatus.RESOLVED,
        LetterAction.RESOLVED,
        actor,
        resolution,
        verb="resolved",
        changes=_resolution_changes(actor, resolution),
        refuse=refuse,
    )


def _resolution_changes(actor: str, resolution: str) -> dict[str, Any]:
    return {"resolution": clean(resolution.strip(), MAX_TEXT), "resolved_by": actor[:255]}


def _resolution_refusal(resolution: str) -> Result | None:
    return None if len(resolution.strip()) >= MIN_WORDS else Result(False, "say how the incident ended")


def _unverified(letter: DeadLetter) -> Result | None:
    return None if letter.verified_at else Result(False, "its effect has not been verified")


def discard(letter_id: int, *, actor: str, reason: str, row_version: int | None = None) -> Result:
    """Give a letter up that is not being replayed; the job stays as it is, and readable.

    Raises ValueError without a reason.
    """
    transitions.require_reason(reason)
    with transaction.atomic():
        letter = transitions.locked(letter_id)
        if refused := transitions.refusal(letter, DISCARDABLE, row_version):
            return refuse(letter, actor, refused)
        transitions.move(letter, LetterStatus.DISCARDED, LetterAction.DISCARDED, actor, reason)
    return Result(True, "discarded")


def discard_many(letter_ids: Collection[int], *, actor: str, reason: str) -> Tally:
    """Give up the letters of a set that are not being replayed. Raises ValueError without a reason."""
    transitions.require_reason(reason)
    return transitions.move_many(
        letter_ids,
        DISCARDABLE,
        LetterStatus.DISCARDED,
        LetterAction.DISCARDED,
        actor,
        reason,
        verb="discarded",
    )
