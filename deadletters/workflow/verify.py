"""Check that the effect of a replay is there (000, 8.5 item 5)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from deadletters import alerts, transitions
from deadletters.models import DeadLetter
from deadletters.ports import recovery
from deadletters.states import LetterAction, LetterStatus
from deadletters.types import Check, CheckKind, Failed, Tally, Validation
from deadletters.workflow.base import refuse

log = structlog.get_logger(__name__)


def verify(letter_id: int, *, actor: str, row_version: int | None = None) -> Validation:
    """Check the effect of a replay: what the stage stores, and evidence of each delivery.

    One that cannot be there yet leaves the letter waiting. One that is missing escalates it, and the
    operators are told once a round: it goes back to the start where its job is dead-lettered, and
    stays where nothing could be replayed, for evidence that arrives later or a discard.
    """
    letter = DeadLetter.objects.get(pk=letter_id)
    if refused := transitions.refusal(letter, (LetterStatus.VERIFYING,), row_version):
        return Validation(False, refuse(letter, actor, refused).message)
    checks = tuple(recovery().verify(Failed(letter.job_id, letter.stage)))
    with transaction.atomic():
        held = transitions.locked(letter_id)
        if refused := transitions.refusal(held, (LetterStatus.VERIFYING,), letter.row_version):
            return Validation(False, refused.message, checks)
        return _verified(held, actor, checks)


def _verified(letter: DeadLetter, actor: str, checks: tuple[Check, ...]) -> Validation:
    missing = [check.message for check in checks if not check.ok and not check.is_waiting]
    waiting = [check.message for check in checks if not check.ok and check.is_waiting]
    found: dict[str, Any] = {
        "verification": [check.stored() for check in checks],
        "verified_by": "",
        "verified_at": None,
    }
    if missing:
        words = "; ".join(missing)
        to, changes = (LetterStatus.NEW, {}) if _is_dead(letter) else (LetterStatus.VERIFYING, found)
        transitions.move(letter, to, LetterAction.NOT_VERIFIED, actor, words, is_escalated=True, **changes)
        alerts.tell(
            "not_verified",
            key=f"not-verified:{letter.pk}:{letter.replayed_at}",
            title=f"A replay of {letter.stage} succeeded without its effect",
            text=f"Letter {letter.pk}: {words}",
            path=reverse("admin:deadletters_deadletter_change", args=[letter.pk]),
        )
        return Validation(False, f"the effect is missing: {words}", checks, is_escalated=True)
    if waiting:
        words = "; ".join(waiting)
        transitions.move(letter, LetterStatus.VERIFYING, LetterAction.NOT_VERIFIED, actor, words, **found)
        return Validation(False, f"not yet: {words}", checks)
    transitions.move(
        letter,
        LetterStatus.VERIFYING,
        LetterAction.VERIFIED,
        actor,
        "; ".join(check.message for check in checks),
        **{**found, "verified_by": actor[:255], "verified_at": timezone.now()},
    )
    return Validation(True, "verified: the effect is there", checks)


def _is_dead(letter: DeadLetter) -> bool:
    """Say whether the letter's job is dead-lettered again, so that another round could replay it."""
    checks = recovery().survey([Failed(letter.job_id, letter.stage)], restart=None)[letter.job_id]
    return all(check.ok for check in checks if check.kind is CheckKind.JOB)


def verify_many(letter_ids: Collection[int], *, actor: str) -> Tally:
    """Verify the letters of a set that wait for it, each by itself; count those that it escalated."""
    tally = Tally("verified")
    wanted = sorted(set(letter_ids))
    for start in range(0, len(wanted), transitions.AT_ONCE):
        part = wanted[start : start + transitions.AT_ONCE]
        letters = DeadLetter.objects.filter(pk__in=part).only("status")
        late = transitions.invalid_transition_reasons(letters, (LetterStatus.VERIFYING,), of=len(wanted))
        for letter_id in part:
            if letter_id in late:
                tally.skip(letter_id, late[letter_id])
            else:
                _tally_verification(tally, letter_id, actor)
    return tally


def _tally_verification(tally: Tally, letter_id: int, actor: str) -> None:
    try:
        outcome = verify(letter_id, actor=actor)
    except DeadLetter.DoesNotExist:
        outcome = Validation(False, "it does not exist any more")
    if outcome.ok:
        tally.done += 1
        tally.done_ids.append(letter_id)
    elif outcome.is_escalated:
        tally.escalated += 1
    else:
        tally.skip(letter_id, outcome.message)
