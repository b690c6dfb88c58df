"""Check that a replay could work now (000, 8.5 item 3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.models import MIN_WORDS, DeadLetter
from deadletters.ports import Recovery, recovery
from deadletters.states import LetterAction, LetterStatus
from deadletters.types import Check, CheckKind, Failed, Tally, Validation
from deadletters.workflow.base import MAX_TEXT, refuse

log = structlog.get_logger(__name__)

_VALIDATABLE = (LetterStatus.REMEDIATED, LetterStatus.VALIDATED)
_LEFT = Check(
    CheckKind.ALLOW_LIST,
    True,
    "not looked at by the validation of a set: every stage of the replay does before it sends anything",
    is_left=True,
)


def validate(
    letter_id: int, *, actor: str, override_reason: str = "", row_version: int | None = None
) -> Validation:
    """Run the checks that a replay needs; harmless, but it may take seconds. Call it in no transaction.

    Failed checks keep the letter where it is, unless `override_reason` says why they do not
    matter. Checks that are hard are never overruled: the replay could not work.
    """
    letter = DeadLetter.objects.get(pk=letter_id)
    refused = transitions.refusal(letter, _VALIDATABLE, row_version)
    if refused:
        return Validation(False, refuse(letter, actor, refused).message)
    port, failed = recovery(), Failed(letter.job_id, letter.stage)
    # First: what answers now says what an open circuit means for a replay.
    answered = port.answers([failed], restart=None)[letter.job_id]
    surveyed = port.survey([failed], restart=None)[letter.job_id]
    checks = [*surveyed, *answered, *port.probe(failed, restart=None)]
    with transaction.atomic():
        held = transitions.locked(letter_id)
        refused = transitions.refusal(held, _VALIDATABLE, letter.row_version)
        if refused:
            return Validation(False, refuse(held, actor, refused).message, tuple(checks))
        return _validated(held, actor, tuple(checks), override_reason, restart=None)


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
    to its replay, which fails closed; the checks that are kept say so of the allow-list.
    """
    port = port or recovery()
    tally = Tally("validated")
    wanted = sorted(set(letter_ids))
    for start in range(0, len(wanted), transitions.AT_ONCE):
        part = wanted[start : start + transitions.AT_ONCE]
        letters = list(DeadLetter.objects.filter(pk__in=part).order_by("pk"))
        seen = {letter.pk: letter.row_version for letter in letters}
        failed = [Failed(letter.job_id, letter.stage) for letter in letters]
        answered = port.answers(failed, restart=restart)
        said = port.survey(failed, restart=restart)
        with transaction.atomic():  # one commit for all: each by itself would cost a flush
            held = transitions.locked_many(part)
            late = transitions.invalid_transition_reasons(held, _VALIDATABLE, of=len(wanted))
            for letter in held:
                if letter.pk not in late and letter.row_version != seen.get(letter.pk):
                    late[letter.pk] = transitions.CHANGED
                if letter.pk in late:
                    tally.skip(letter.pk, late[letter.pk])
                    continue
                checks = (*said[letter.job_id], *answered[letter.job_id], _LEFT)
                _tally_validation(tally, letter, actor, checks, override_reason, restart=restart)
        for missing in set(part) - {letter.pk for letter in held}:
            tally.skip(missing, "it does not exist any more")
    return tally


def _tally_validation(
    tally: Tally,
    letter: DeadLetter,
    actor: str,
    checks: tuple[Check, ...],
    override_reason: str,
    *,
    restart: bool,
) -> None:
    outcome = _validated(letter, actor, checks, override_reason, restart=restart)
    if outcome.ok:
        tally.done += 1
        tally.done_ids.append(letter.pk)
    else:
        tally.skip(letter.pk, next(check.message for check in outcome.failed))


def _validated(
    letter: DeadLetter, actor: str, checks: tuple[Check, ...], override_reason: str, *, restart: bool | None
) -> Validation:
    """Record the checks on a locked letter, and move it when they allow it.

    `restart` is what they were asked for, None where that is not decided; the timeline keeps it.
    """
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
    names = {"failed": [check.name for check in failed], "restart": restart}
    words = "; ".join(check.message for check in failed)
    if failed and not overrules:
        transitions.move(
            letter, LetterStatus.REMEDIATED, LetterAction.NOT_VALIDATED, actor, words, context=names, **found
        )
        why = "cannot be overruled" if is_hard else "mend it, or say why it does not matter"
        return Validation(False, f"{len(failed)} of {len(checks)} checks failed: {words} ({why})", checks)
    action = LetterAction.OVERRIDDEN if overrules else LetterAction.VALIDATED
    transitions.move(
        letter,
        LetterStatus.VALIDATED,
        action,
        actor,
        override_reason if overrules else "",
        context=names,
        **found,
    )
    if overrules:
        return Validation(True, f"validated although {len(failed)} of {len(checks)} checks failed", checks)
    return Validation(True, f"validated: {len(checks)} checks passed", checks)
