"""Record how the cause of a failure was removed, with evidence."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.utils import timezone

from criticizer.redaction import clean
from deadletters.models import MIN_REASON_CHARS
from deadletters.states import LetterAction, LetterStatus
from deadletters.transitions import MAX_TEXT, Step
from deadletters.types import Result, Tally, link_problem

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
    """Record a remediation: a link to a ticket or incident (http or https), a sentence, or both."""
    step = _remediation(actor, evidence_link, evidence_note, checklist)
    return step.take(letter_id, _REMEDIABLE, row_version, "remediation recorded")


def remediate_many(
    letter_ids: Collection[int],
    *,
    actor: str,
    evidence_link: str = "",
    evidence_note: str = "",
    checklist: Sequence[str] = (),
) -> Tally:
    """Record one remediation for the triaged letters of a set; skip all without evidence."""
    step = _remediation(actor, evidence_link, evidence_note, checklist)
    return step.take_many(letter_ids, (LetterStatus.TRIAGED, LetterStatus.REMEDIATED))


def _remediation(actor: str, link: str, note: str, checklist: Sequence[str]) -> Step:
    link, note = link.strip(), note.strip()
    return Step(
        LetterStatus.REMEDIATED,
        LetterAction.REMEDIATED,
        actor,
        " ".join(filter(None, (note, link))),
        {
            "evidence_link": clean(link, 500),
            "evidence_note": clean(note, MAX_TEXT),
            "checklist": [clean(line, 300) for line in checklist][:20],
            "remediated_by": actor[:255],
            "remediated_at": timezone.now(),
        },
        {"done": list(checklist)},
        lambda _: _evidence_problem(link, note),
    )


def _evidence_problem(link: str, note: str) -> str:
    if max(len(link), len(note)) < MIN_REASON_CHARS:
        return "evidence is required: a link to a ticket, or what was done"
    return link_problem(link, "the ticket's link")
