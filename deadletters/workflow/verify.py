"""Check that a replay had its effect. (guarantee G63)"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db import transaction
from django.utils import timezone

from deadletters import alerts, transitions
from deadletters.models import DeadLetter
from deadletters.ports import recovery
from deadletters.states import LetterAction, LetterStatus
from deadletters.transitions import refuse
from deadletters.types import GONE, Check, CheckKind, Failed, Tally, Validation

_VERIFIABLE = (LetterStatus.VERIFYING,)


def verify(letter_id: int, *, actor: str, row_version: int | None = None) -> Validation:
    """Check the effect of a replay: the rows of the stage, and evidence of each delivery.

    An effect that cannot exist yet leaves the letter waiting. A missing one escalates the letter and
    alerts operators once a replay: the letter goes back to the start if its job is dead-lettered, and
    otherwise stays, for evidence that arrives later or a discard.
    """
    letter = DeadLetter.objects.get(pk=letter_id)
    if refused := transitions.refusal(letter, _VERIFIABLE, row_version):
        return Validation(False, refuse(letter, actor, refused).message)
    checks = tuple(recovery().verify(Failed(letter.job_id, letter.stage)))
    with transaction.atomic():
        held = transitions.locked(letter_id)
        if refused := transitions.refusal(held, _VERIFIABLE, letter.row_version):
            return Validation(False, refused.message, checks)
        return _verified(held, actor, checks)


def _verified(letter: DeadLetter, actor: str, checks: tuple[Check, ...]) -> Validation:
    missing = "; ".join(check.message for check in checks if not check.ok and not check.is_waiting)
    waiting = "; ".join(check.message for check in checks if not check.ok and check.is_waiting)
    found: dict[str, Any] = {
        "verification": [check.stored() for check in checks],
        "verified_by": "",
        "verified_at": None,
    }
    to = LetterStatus.VERIFYING
    if missing:
        if _is_dead(letter):
            to, found = LetterStatus.NEW, {}
        transitions.move(letter, to, LetterAction.NOT_VERIFIED, actor, missing, is_escalated=True, **found)
        alerts.tell(
            "not_verified",
            key=f"not-verified:{letter.pk}:{letter.replayed_at}",
            stage=letter.stage,
            letter=letter.pk,
            missing=missing,
            path=alerts.page("deadletter", letter.pk),
        )
        return Validation(False, f"the effect is missing: {missing}", checks, is_escalated=True)
    if waiting:
        transitions.move(letter, to, LetterAction.NOT_VERIFIED, actor, waiting, **found)
        return Validation(False, f"not yet: {waiting}", checks)
    found |= {"verified_by": actor[:255], "verified_at": timezone.now()}
    messages = "; ".join(check.message for check in checks)
    transitions.move(letter, to, LetterAction.VERIFIED, actor, messages, **found)
    return Validation(True, "verified: the effect is there", checks)


def _is_dead(letter: DeadLetter) -> bool:
    """Return whether the letter's job is dead-lettered again and can be replayed."""
    checks = recovery().survey([Failed(letter.job_id, letter.stage)], restart=None)[letter.job_id]
    return all(check.ok for check in checks if check.kind is CheckKind.JOB)


def verify_many(letter_ids: Collection[int], *, actor: str) -> Tally:
    """Verify, one by one, the letters of a set that wait for it; count those it escalated."""
    tally = Tally()
    for part in transitions.parts(letter_ids):
        letters = DeadLetter.objects.filter(pk__in=part).only("status")
        late = transitions.invalid_transition_reasons(letters, _VERIFIABLE, of=len(set(letter_ids)))
        for letter_id in part:
            if letter_id in late:
                tally.skipped_ids[letter_id] = late[letter_id]
                continue
            try:
                outcome = verify(letter_id, actor=actor)
            except DeadLetter.DoesNotExist:
                outcome = Validation(False, GONE)
            if outcome.ok:
                tally.done_ids.append(letter_id)
            elif outcome.is_escalated:
                tally.escalated += 1
            else:
                tally.skipped_ids[letter_id] = outcome.message
    return tally
