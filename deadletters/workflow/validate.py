"""Check that a replay can work now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db import transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import transitions
from deadletters.models import MIN_REASON_CHARS, DeadLetter
from deadletters.ports import Recovery, recovery
from deadletters.states import LetterAction, LetterStatus
from deadletters.transitions import MAX_TEXT, refuse
from deadletters.types import Check, CheckKind, Failed, Tally, Validation

_VALIDATABLE = (LetterStatus.REMEDIATED, LetterStatus.VALIDATED)
_LEFT = Check(
    CheckKind.ALLOW_LIST,
    True,
    "not checked for a set of letters: every stage of the replay checks it before it sends anything",
    is_left=True,
)


def validate(
    letter_id: int, *, actor: str, override_reason: str = "", row_version: int | None = None
) -> Validation:
    """Run the checks that a replay needs. Harmless; takes seconds: call it in no transaction.

    Failed checks keep the letter where it is, unless `override_reason` says why they do not matter.
    Hard checks are never overruled: the replay could not work.
    """
    letter = DeadLetter.objects.get(pk=letter_id)
    if refused := transitions.refusal(letter, _VALIDATABLE, row_version):
        return Validation(False, refuse(letter, actor, refused).message)
    port, failed = recovery(), Failed(letter.job_id, letter.stage)
    # First: a dependency that answers now decides what its open circuit means for a replay.
    answered = port.answers([failed], restart=None)[letter.job_id]
    surveyed = port.survey([failed], restart=None)[letter.job_id]
    checks = (*surveyed, *answered, *port.probe(failed, restart=None))
    with transaction.atomic():
        held = transitions.locked(letter_id)
        if refused := transitions.refusal(held, _VALIDATABLE, letter.row_version):
            return Validation(False, refuse(held, actor, refused).message, checks)
        return _validated(held, actor, checks, override_reason, restart=None)


def validate_many(
    letter_ids: Collection[int],
    *,
    actor: str,
    override_reason: str = "",
    restart: bool = False,
    port: Recovery | None = None,
) -> Tally:
    """Validate the remediated letters of a set, each by itself; each dependency is asked once.

    The checks of a single job (its artifact opens, its paths are allowed now) are left to its replay,
    which fails closed; the stored checks say so.
    """
    port = port or recovery()
    tally = Tally()
    for part in transitions.parts(letter_ids):
        letters = list(DeadLetter.objects.filter(pk__in=part).order_by("pk"))
        seen = {letter.pk: letter.row_version for letter in letters}
        failed = [Failed(letter.job_id, letter.stage) for letter in letters]
        answered = port.answers(failed, restart=restart)
        surveyed = port.survey(failed, restart=restart)
        with transaction.atomic():  # one commit for all: a commit each would cost a flush each
            held = transitions.locked_many(part)
            late = transitions.invalid_transition_reasons(held, _VALIDATABLE, of=len(set(letter_ids)))
            for letter in held:
                if letter.row_version != seen.get(letter.pk):
                    late.setdefault(letter.pk, "it was changed while it was checked")
                if letter.pk in late:
                    tally.skipped_ids[letter.pk] = late[letter.pk]
                    continue
                checks = (*surveyed[letter.job_id], *answered[letter.job_id], _LEFT)
                outcome = _validated(letter, actor, checks, override_reason, restart=restart)
                if outcome.ok:
                    tally.done_ids.append(letter.pk)
                else:
                    tally.skipped_ids[letter.pk] = outcome.failed[0].message
        tally.skip_missing(part, held)
    return tally


def _validated(
    letter: DeadLetter, actor: str, checks: tuple[Check, ...], override_reason: str, *, restart: bool | None
) -> Validation:
    """Record the checks on a locked letter, and move it if they allow it.

    `restart` is the start they were made for, None if that is not decided; the timeline keeps it.
    """
    failed = tuple(check for check in checks if not check.ok)
    is_hard = any(check.is_hard for check in failed)
    overrules = bool(failed) and not is_hard and len(override_reason.strip()) >= MIN_REASON_CHARS
    found: dict[str, Any] = {
        "context": {"failed": [check.name for check in failed], "restart": restart},
        "validation": [check.stored() for check in checks],
        "validation_ok": not failed,
        "validated_by": actor[:255],
        "validated_at": timezone.now(),
        "override_reason": clean(override_reason.strip(), MAX_TEXT) if overrules else "",
    }
    count = f"{len(failed)} of {len(checks)} checks failed"
    if failed and not overrules:
        problems = "; ".join(check.message for check in failed)
        transitions.move(
            letter, LetterStatus.REMEDIATED, LetterAction.NOT_VALIDATED, actor, problems, **found
        )
        advice = "cannot be overridden" if is_hard else "fix it, or give a reason to override it"
        return Validation(False, f"{count}: {problems} ({advice})", checks)
    action = LetterAction.OVERRIDDEN if overrules else LetterAction.VALIDATED
    reason = override_reason if overrules else ""
    transitions.move(letter, LetterStatus.VALIDATED, action, actor, reason, **found)
    done = f"validated although {count}" if overrules else f"validated: {len(checks)} checks passed"
    return Validation(True, done, checks)
