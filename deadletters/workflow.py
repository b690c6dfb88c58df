"""The operators' steps with a dead letter (specification 000, 8.5): the only door to its states.

    triage ─► remediate ─► validate ─► replay ─► (the job works) ─► verify ─► resolve
    discard, at any time before a replay

Each step takes `actor`, is refused when it is not the letter's turn, and leaves a line in the
timeline whether it was taken or refused. `row_version`, where given, is the version of the letter
that the operator looked at: a step on a letter that changed meanwhile is refused.

    triage(id, *, actor, category, note="")                          -> Result
    remediate(id, *, actor, evidence_link, evidence_note, checklist) -> Result
    validate(id, *, actor, override_reason="")                       -> Validation
    replay(id, *, actor, reason, restart=False)                      -> Result
    verify(id, *, actor)                                             -> Validation
    resolve(id, *, actor, resolution)                                -> Result
    discard(id, *, actor, reason)                                    -> Result
    triage_many, remediate_many, validate_many, verify_many, resolve_many, discard_many -> Tally

A letter's job and how it goes back to work, this room does not know: it asks the port
`settings.DEADLETTER_RECOVERY` (`results.Recovery`). What jobs tell is in `failing`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import alerts, moves
from deadletters.categories import checklist, suggested_category
from deadletters.models import MIN_WORDS, DeadLetter
from deadletters.results import (
    SYSTEM,
    Check,
    Failed,
    LetterDraft,
    Recovery,
    Result,
    Tally,
    Validation,
    recovery,
)
from deadletters.states import BEFORE_REPLAY, Category, LetterAction, LetterStatus

log = structlog.get_logger(__name__)

__all__ = [
    "SYSTEM",
    "VALID_FOR",
    "Check",
    "LetterDraft",
    "Recovery",
    "ReplayResult",
    "Result",
    "Tally",
    "Validation",
    "checklist",
    "discard",
    "discard_many",
    "recovery",
    "remediate",
    "remediate_many",
    "replay",
    "resolve",
    "resolve_many",
    "suggested_category",
    "triage",
    "triage_many",
    "validate",
    "validate_many",
    "verify",
    "verify_many",
]

ReplayResult = Result
VALID_FOR = timedelta(minutes=60)  # then a validation is stale
MAX_TEXT = 4000

_S = LetterStatus
_TRIAGEABLE = BEFORE_REPLAY
_REMEDIABLE = (_S.TRIAGED, _S.REMEDIATED, _S.VALIDATED)
_VALIDATABLE = (_S.REMEDIATED, _S.VALIDATED)


# -- triage ------------------------------------------------------------------------------------


def triage(
    letter_id: int, *, actor: str, category: str, note: str = "", row_version: int | None = None
) -> Result:
    """Say what kind of failure it is. Triaging again later takes the letter back to this step."""
    with transaction.atomic():
        letter = moves.locked(letter_id)
        refused = moves.refusal(letter, _TRIAGEABLE, row_version) or _category_refusal(category)
        if refused:
            return _refuse(letter, actor, refused)
        changes = _triage_changes(actor, category, note)
        moves.move(
            letter, _S.TRIAGED, LetterAction.TRIAGED, actor, note, context={"category": category}, **changes
        )
    return Result(True, f"triaged as {Category(category).label.lower()}")


def triage_many(letter_ids: Collection[int], *, actor: str, category: str = "", note: str = "") -> Tally:
    """Triage the new letters of a set. Without a category, each by what its class suggests."""
    if category:
        if refused := _category_refusal(category):
            raise ValueError(refused.message)
        return _triage_as(letter_ids, actor, category, note)
    suggested: dict[str, list[int]] = {}
    for pk, error_class in DeadLetter.objects.filter(pk__in=letter_ids).values_list("pk", "error_class"):
        suggested.setdefault(suggested_category(error_class).value, []).append(pk)
    total = Tally("triaged")
    for kind, ids in suggested.items():
        _add(total, _triage_as(ids, actor, kind, note))
    for missing in set(letter_ids) - {pk for ids in suggested.values() for pk in ids}:
        total.skip(missing, "it does not exist any more")
    return total


def _triage_as(letter_ids: Collection[int], actor: str, category: str, note: str) -> Tally:
    return moves.move_many(
        letter_ids,
        (_S.NEW, _S.TRIAGED),
        _S.TRIAGED,
        LetterAction.TRIAGED,
        actor,
        note,
        verb="triaged",
        changes=_triage_changes(actor, category, note),
        context={"category": category},
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


# -- remediation -------------------------------------------------------------------------------


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
        letter = moves.locked(letter_id)
        refused = moves.refusal(letter, _REMEDIABLE, row_version)
        refused = refused or _evidence_refusal(evidence_link, evidence_note)
        if refused:
            return _refuse(letter, actor, refused)
        changes = _remediation_changes(actor, evidence_link, evidence_note, checklist)
        moves.move(
            letter,
            _S.REMEDIATED,
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
    return moves.move_many(
        letter_ids,
        (_S.TRIAGED, _S.REMEDIATED),
        _S.REMEDIATED,
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


# -- validation --------------------------------------------------------------------------------


def validate(
    letter_id: int, *, actor: str, override_reason: str = "", row_version: int | None = None
) -> Validation:
    """Run the checks that a replay needs; harmless, but it may take seconds. Call it in no transaction.

    Failed checks keep the letter where it is, unless `override_reason` says why they do not
    matter. Checks that are hard are never overruled: the replay could not work.
    """
    letter = DeadLetter.objects.get(pk=letter_id)
    refused = moves.refusal(letter, _VALIDATABLE, row_version)
    if refused:
        return Validation(False, _refuse(letter, actor, refused).message)
    port, failed = recovery(), Failed(letter.job_id, letter.stage)
    checks = [
        *port.survey([failed], restart=None)[letter.job_id],
        *port.answers([failed])[letter.job_id],
        *port.probe(failed),
    ]
    with transaction.atomic():
        held = moves.locked(letter_id)
        refused = moves.refusal(held, _VALIDATABLE, letter.row_version)
        if refused:
            return Validation(False, _refuse(held, actor, refused).message, tuple(checks))
        return _validated(held, actor, tuple(checks), override_reason)


def validate_many(
    letter_ids: Collection[int],
    *,
    actor: str,
    override_reason: str = "",
    restart: bool = False,
    port: Recovery | None = None,
) -> Tally:
    """Validate the remediated letters of a set, each by itself; each dependency is asked once.

    What a look at one job alone would say (its artifact opens, its paths are allowed now) is left
    to its replay, which fails closed.
    """
    port = port or recovery()
    tally = Tally("validated")
    wanted = sorted(set(letter_ids))
    for start in range(0, len(wanted), moves.AT_ONCE):
        part = wanted[start : start + moves.AT_ONCE]
        letters = list(DeadLetter.objects.filter(pk__in=part).order_by("pk"))
        failed = {letter.pk: Failed(letter.job_id, letter.stage) for letter in letters}
        said = port.survey(list(failed.values()), restart=restart)
        answered = port.answers(list(failed.values()))
        with transaction.atomic():  # one commit for all: each by itself would cost a flush
            for letter in letters:
                checks = (*said[letter.job_id], *answered[letter.job_id])
                _tally_validation(tally, letter, actor, checks, override_reason)
        for missing in set(part) - failed.keys():
            tally.skip(missing, "it does not exist any more")
    return tally


def _tally_validation(
    tally: Tally, letter: DeadLetter, actor: str, checks: tuple[Check, ...], override_reason: str
) -> None:
    held = moves.locked(letter.pk)
    if refused := moves.refusal(held, _VALIDATABLE, letter.row_version):
        tally.skip(letter.pk, refused.message)
        return
    outcome = _validated(held, actor, checks, override_reason)
    if outcome.ok:
        tally.done += 1
        tally.done_ids.append(letter.pk)
    else:
        tally.skip(letter.pk, next(check.message for check in outcome.failed))


def _validated(letter: DeadLetter, actor: str, checks: tuple[Check, ...], override_reason: str) -> Validation:
    """Record the checks on a locked letter, and move it when they allow it."""
    failed = tuple(check for check in checks if not check.ok)
    is_hard = any(check.is_hard for check in failed)
    overrules = bool(failed) and not is_hard and len(override_reason.strip()) >= MIN_WORDS
    found: dict[str, Any] = {
        "validation": [check.stored() for check in checks],
        "validation_ok": not failed,
        "validated_by": actor[:255],
        "validated_at": timezone.now(),
        "override_reason": clean(override_reason.strip(), MAX_TEXT) if overrules else "",
    }
    names = {"failed": [check.name for check in failed]}
    words = "; ".join(check.message for check in failed)
    if failed and not overrules:
        moves.move(letter, _S.REMEDIATED, LetterAction.NOT_VALIDATED, actor, words, context=names, **found)
        why = "cannot be overruled" if is_hard else "mend it, or say why it does not matter"
        return Validation(False, f"{len(failed)} of {len(checks)} checks failed: {words} ({why})", checks)
    action = LetterAction.OVERRIDDEN if overrules else LetterAction.VALIDATED
    moves.move(
        letter, _S.VALIDATED, action, actor, override_reason if overrules else "", context=names, **found
    )
    if overrules:
        return Validation(True, f"validated although {len(failed)} of {len(checks)} checks failed", checks)
    return Validation(True, f"validated: {len(checks)} checks passed", checks)


# -- replay ------------------------------------------------------------------------------------


def replay(
    letter_id: int, *, actor: str, reason: str, restart: bool = False, row_version: int | None = None
) -> Result:
    """Send a validated letter's job back to work from the failed stage, or from the first with `restart`.

    What the rows say is checked once more. A validation older than an hour is stale: the letter
    goes back a step. Refusals leave a line in the timeline. Raises ValueError without a reason.
    """
    return replay_from(_S.VALIDATED, letter_id, actor, reason, restart=restart, row_version=row_version)


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
    if len(reason.strip()) < MIN_WORDS:
        raise ValueError("Say why: a ticket, an incident or a sentence.")
    port = port or recovery()
    try:
        with transaction.atomic():
            letter = moves.locked(letter_id)
            refused = moves.refusal(letter, (start,), row_version) or _why_not_now(letter, port, restart)
            if refused:
                return _refuse(letter, actor, refused)
            # The letter is being replayed and the job is at work, or neither.
            if not port.replay(letter.job_id, letter.stage, restart=restart):
                raise _CannotReplay
            moves.move(
                letter,
                _S.REPLAYING,
                LetterAction.RESTARTED if restart else LetterAction.REPLAYED,
                actor,
                reason,
                context={"payload_reference": letter.payload_reference},
                replay_reason=clean(reason.strip(), MAX_TEXT),
                replayed_by=actor[:255],
                replayed_at=timezone.now(),
                is_restart=restart,
            )
    except (_CannotReplay, IntegrityError):
        return Result(False, "the job is no longer dead-lettered, or another version is being worked on")
    log.info("dead_letter_replayed", letter=letter_id, actor=actor, restart=restart)
    place = "the first stage" if restart else f"stage {letter.stage}"
    return Result(True, f"replayed from {place}")


class _CannotReplay(Exception):
    pass


def _why_not_now(letter: DeadLetter, port: Recovery, restart: bool) -> Result | None:
    if letter.validated_at is None or letter.validated_at < timezone.now() - VALID_FOR:
        minutes = int(VALID_FOR.total_seconds() // 60)
        if letter.status == _S.VALIDATED:
            moves.move(letter, _S.REMEDIATED, LetterAction.STALE, SYSTEM, f"older than {minutes} minutes")
        return Result(False, f"the validation is older than {minutes} minutes: validate again")
    failed = Failed(letter.job_id, letter.stage)
    for check in port.survey([failed], restart=restart)[letter.job_id]:
        if not check.ok and (check.is_hard or not letter.override_reason):
            return Result(False, check.message)
    return None


# -- verification ------------------------------------------------------------------------------


def verify(letter_id: int, *, actor: str, row_version: int | None = None) -> Validation:
    """Check the effect of a replay: what the stage stores, and evidence of each delivery.

    A missing effect sends the letter back to the start and tells the operators; one that cannot be
    there yet leaves it waiting.
    """
    letter = DeadLetter.objects.get(pk=letter_id)
    if refused := moves.refusal(letter, (_S.VERIFYING,), row_version):
        return Validation(False, _refuse(letter, actor, refused).message)
    checks = tuple(recovery().verify(Failed(letter.job_id, letter.stage)))
    with transaction.atomic():
        held = moves.locked(letter_id)
        if refused := moves.refusal(held, (_S.VERIFYING,), letter.row_version):
            return Validation(False, refused.message, checks)
        return _verified(held, actor, checks)


def _verified(letter: DeadLetter, actor: str, checks: tuple[Check, ...]) -> Validation:
    missing = [check.message for check in checks if not check.ok and not check.is_waiting]
    waiting = [check.message for check in checks if not check.ok and check.is_waiting]
    found: dict[str, Any] = {"verification": [check.stored() for check in checks]}
    if missing:
        words = "; ".join(missing)
        moves.move(letter, _S.NEW, LetterAction.NOT_VERIFIED, actor, words, is_escalated=True)
        alerts.tell(
            "not_verified",
            key=f"not-verified:{letter.pk}:{letter.row_version}",
            title=f"A replay of {letter.stage} succeeded without its effect",
            text=f"Letter {letter.pk}: {words}",
            path=f"/admin/deadletters/deadletter/{letter.pk}/change/",
        )
        return Validation(False, f"the effect is missing: {words}", checks)
    if waiting:
        words = "; ".join(waiting)
        moves.move(letter, _S.VERIFYING, LetterAction.NOT_VERIFIED, actor, words, **found)
        return Validation(False, f"not yet: {words}", checks)
    moves.move(
        letter,
        _S.VERIFYING,
        LetterAction.VERIFIED,
        actor,
        "; ".join(check.message for check in checks),
        verified_by=actor[:255],
        verified_at=timezone.now(),
        **found,
    )
    return Validation(True, "verified: the effect is there", checks)


def verify_many(letter_ids: Collection[int], *, actor: str) -> Tally:
    """Verify the letters of a set that wait for it, each by itself."""
    tally = Tally("verified")
    for letter_id in sorted(set(letter_ids)):
        try:
            outcome = verify(letter_id, actor=actor)
        except DeadLetter.DoesNotExist:
            outcome = Validation(False, "it does not exist any more")
        if outcome.ok:
            tally.done += 1
            tally.done_ids.append(letter_id)
        else:
            tally.skip(letter_id, outcome.message)
    return tally


# -- the end -----------------------------------------------------------------------------------


def resolve(letter_id: int, *, actor: str, resolution: str, row_version: int | None = None) -> Result:
    """Close a verified letter with notes on how the incident ended."""
    with transaction.atomic():
        letter = moves.locked(letter_id)
        refused = moves.refusal(letter, (_S.VERIFYING,), row_version)
        refused = refused or _unverified(letter) or _resolution_refusal(resolution)
        if refused:
            return _refuse(letter, actor, refused)
        changes = _resolution_changes(actor, resolution)
        moves.move(letter, _S.RESOLVED, LetterAction.RESOLVED, actor, resolution, **changes)
    return Result(True, "resolved")


def resolve_many(letter_ids: Collection[int], *, actor: str, resolution: str) -> Tally:
    """Close the verified letters of a set with the same notes. Raises ValueError without notes."""
    if refused := _resolution_refusal(resolution):
        raise ValueError(refused.message)

    def refuse(letter: DeadLetter) -> str:
        found = _unverified(letter)
        return found.message if found else ""

    return moves.move_many(
        letter_ids,
        (_S.VERIFYING,),
        _S.RESOLVED,
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
    """Give a letter up that is not being replayed; the job stays dead-lettered and readable.

    Raises ValueError without a reason.
    """
    if len(reason.strip()) < MIN_WORDS:
        raise ValueError("Say why: a ticket, an incident or a sentence.")
    with transaction.atomic():
        letter = moves.locked(letter_id)
        if refused := moves.refusal(letter, BEFORE_REPLAY, row_version):
            return _refuse(letter, actor, refused)
        moves.move(letter, _S.DISCARDED, LetterAction.DISCARDED, actor, reason)
    return Result(True, "discarded")


def discard_many(letter_ids: Collection[int], *, actor: str, reason: str) -> Tally:
    """Give up the letters of a set that are not being replayed. Raises ValueError without a reason."""
    if len(reason.strip()) < MIN_WORDS:
        raise ValueError("Say why: a ticket, an incident or a sentence.")
    return moves.move_many(
        letter_ids, BEFORE_REPLAY, _S.DISCARDED, LetterAction.DISCARDED, actor, reason, verb="discarded"
    )


# -- inside -----------------------------------------------------------------------------------


def _refuse(letter: DeadLetter, actor: str, refused: Result) -> Result:
    moves.note(letter.pk, LetterAction.REFUSED, actor, refused.message)
    return refused


def _add(total: Tally, part: Tally) -> None:
    total.done += part.done
    total.done_ids += part.done_ids
    for letter_id, reason in part.skipped_ids.items():
        total.skip(letter_id, reason)
