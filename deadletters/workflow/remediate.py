"""Say what was done about it, with evidence (000, 8.5 item 2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.models import MIN_WORDS
from deadletters.states import LetterAction, LetterStatus
from deadletters.types import Result, Tally
from deadletters.workflow.base import MAX_TEXT, refuse

log = structlog.get_logger(__name__)

_REMEDIABLE = (LetterStatus.TRIAGED, LetterStatus.REMEDIATED, LetterStatus.VALIDATED)


def remediate(
    letter_id: int,
    *,
    actor: str,
    evidence_link: str = "",
    evidence_note: str = "",
    checklist: Sequence[str] = (),
    row_version: int | None = None,
) -> Result:
    """Record what was done: a ticket or incident (http or https), a sentence, or both."""
    with transaction.atomic():
        letter = transitions.locked(letter_id)
        refused = transitions.refusal(letter, _REMEDIABLE, row_version)
        refused = refused or _evidence_refusal(evidence_link, evidence_note)
        if refused:
            return refuse(letter, actor, refused)
        changes = _remediation_changes(actor, evidence_link, evidence_note, checklist)
        transitions.move(
            letter,
            LetterStatus.REMEDIATED,
            LetterAction.REMEDIATED,
            actor,
            _evidence(evidence_link, evidence_note),
            context={"done": list(checklist)},
            **changes,
        )
    return Result(True, "remediation recorded")


def remediate_many(
    letter_ids: Collection[int],
    *,
    actor: str,
    evidence_link: str = "",
    evidence_note: str = "",
    checklist: Sequence[str] = (),
) -> Tally:
    """Record the same remediation for the triaged letters of a set."""
    if refused := _evidence_refusal(evidence_link, evidence_note):
        raise ValueError(refused.message)
    return transitions.move_many(
        letter_ids,
        (LetterStatus.TRIAGED, LetterStatus.REMEDIATED),
        LetterStatus.REMEDIATED,
        LetterAction.REMEDIATED,
        actor,
        _evidence(evidence_link, evidence_note),
        verb="remediated",
        changes=_remediation_changes(actor, evidence_link, evidence_note, checklist),
        context={"done": list(checklist)},
    )


def _remediation_changes(actor: str, link: str, note: str, done: Sequence[str]) -> dict[str, Any]:
    return {
        "evidence_link": clean(link.strip(), 500),
        "evidence_note": clean(note.strip(), MAX_TEXT),
        "checklist": [clean(line, 300) for line in done][:20],
        "remediated_by": actor[:255],
        "remediated_at": timezone.now(),
    }


def _evidence_refusal(link: str, note: str) -> Result | None:
    if link.strip() and not link.strip().startswith(("https://", "http://")):
        return Result(False, "a ticket is linked by an address that begins with https:// or http://")
    if max(len(link.strip()), len(note.strip())) < MIN_WORDS:
        return Result(False, "give a link to a ticket, or say what was done")
    return None


def _evidence(link: str, note: str) -> str:
    return " ".join(filter(None, (note.strip(), link.strip())))
