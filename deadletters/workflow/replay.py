"""Replay the job of a dead letter. (guarantees G60, G61)"""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.models import DeadLetter
from deadletters.ports import Recovery, recovery
from deadletters.states import LetterAction, LetterStatus
from deadletters.transitions import MAX_TEXT, refuse
from deadletters.types import SYSTEM, CheckKind, Failed, Result

log = structlog.get_logger(__name__)

VALID_FOR = timedelta(minutes=60)  # an older validation is stale


def replay(
    letter_id: int, *, actor: str, reason: str, restart: bool = False, row_version: int | None = None
) -> Result:
    """Queue a validated letter's job from the failed stage, or from the first with `restart`.

    The database checks run once more. A stale validation takes the letter back a step. Refusals add a
    line to the timeline. Raises ValueError without a reason.
    """
    return replay_from(
        LetterStatus.VALIDATED, letter_id, actor, reason, restart=restart, row_version=row_version
    )


def replay_from(
    start: LetterStatus,
    letter_id: int,
    actor: str,
    reason: str,
    *,
    restart: bool,
    row_version: int | None = None,
    port: Recovery | None = None,
) -> Result:
    """Replay a letter that is in `start`: VALIDATED, or REPLAY_PENDING for a batch."""
    transitions.require_reason(reason)
    port = port or recovery()
    try:
        with transaction.atomic():
            letter = transitions.locked(letter_id)
            if refused := transitions.refusal(letter, (start,), row_version) or _stale(letter):
                return refuse(letter, actor, refused)
            checks = port.survey([Failed(letter.job_id, letter.stage)], restart=restart)[letter.job_id]
            failed = [check for check in checks if not check.ok]
            # A circuit that opened since the validation, or answered although open, is waited for.
            for check in failed:
                if check.is_hard or not (letter.override_reason or check.is_waited_for):
                    return refuse(letter, actor, Result(False, check.message))
            # The letter and its job move together: no job is queued while its letter says otherwise.
            transitions.move(
                letter,
                LetterStatus.REPLAYING,
                LetterAction.RESTARTED if restart else LetterAction.REPLAYED,
                actor,
                reason,
                context={"payload_reference": letter.payload_reference},
                replay_reason=clean(reason.strip(), MAX_TEXT),
                replayed_by=actor[:255],
                replayed_at=timezone.now(),
                is_restart=restart,
            )
            if not port.replay(letter.job_id, letter.stage, restart=restart):
                raise _CannotReplay
    except (_CannotReplay, IntegrityError):
        return Result(False, "the job is no longer dead-lettered, or another version is being worked on")
    log.info("dead_letter_replayed", letter=letter_id, actor=actor, restart=restart)
    place = "the first stage" if restart else f"stage {letter.stage}"
    circuits = [check for check in failed if check.is_waited_for and check.kind is CheckKind.CIRCUIT]
    waits = "".join(f"; it waits for {circuit.name} to close" for circuit in circuits)
    return Result(True, f"replayed from {place}{waits}")


class _CannotReplay(Exception):
    pass


def _stale(letter: DeadLetter) -> Result | None:
    if letter.validated_at is not None and letter.validated_at >= timezone.now() - VALID_FOR:
        return None
    age = f"older than {int(VALID_FOR.total_seconds() // 60)} minutes"
    if letter.status == LetterStatus.VALIDATED:
        transitions.move(letter, LetterStatus.REMEDIATED, LetterAction.STALE, SYSTEM, age)
    return Result(False, f"the validation is {age}: validate again")
