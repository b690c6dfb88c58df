"""Guarded writes of dead letters: counts are checked, moves add a line to the timeline.

The only module that updates a letter's status, on behalf of `workflow`, `ingest`, `batches`, `edits` and
`retention`. (guarantee G64)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from criticizer.redaction import clean, clean_context
from deadletters.models import MIN_REASON_CHARS, DeadLetter, DeadLetterEvent
from deadletters.states import CLOSED_LETTER, NO_STEP, LetterAction, LetterStatus
from deadletters.types import Result, Tally, source_of

AT_ONCE = 500  # letters a transaction locks
WARNED_AHEAD = timedelta(days=1)  # before retention takes an untouched letter
FEW = 3  # a refusal names the last actor only in sets of so few letters
MAX_TEXT = 4000  # characters of a reason or a note
# The missing step of a letter that is not as far as a step needs.
_FIRST = {
    LetterStatus.NEW: "triage it first",
    LetterStatus.TRIAGED: "remediate it first",
    LetterStatus.REMEDIATED: "validate it first",
    LetterStatus.VALIDATED: "replay it first",
}
_ORDER = tuple(LetterStatus)


def require_reason(reason: str) -> None:
    """Raise ValueError for a reason that is too short for the CHECK constraints."""
    if len(reason.strip()) < MIN_REASON_CHARS:
        raise ValueError("A reason is required: a ticket, an incident or a sentence.")


def parts(letter_ids: Collection[int]) -> Iterator[list[int]]:
    """Yield the ids in order, each once, as many at a time as a transaction locks."""
    wanted = sorted(set(letter_ids))
    for start in range(0, len(wanted), AT_ONCE):
        yield wanted[start : start + AT_ONCE]


_REMEDIATION: Mapping[str, Any] = {
    "evidence_link": "",
    "evidence_note": "",
    "checklist": [],
    "remediated_by": "",
    "remediated_at": None,
}
_VALIDATION: Mapping[str, Any] = {
    "validation": [],
    "validation_ok": None,
    "override_reason": "",
    "validated_by": "",
    "validated_at": None,
}
_AFTER: Mapping[str, Any] = {
    "replay_reason": "",
    "replayed_by": "",
    "replayed_at": None,
    "is_restart": False,
    "verification": [],
    "verified_by": "",
    "verified_at": None,
}
# The columns that are cleared when a letter goes back to a state; its events keep what they held.
_CLEARED: Mapping[LetterStatus, Mapping[str, Any]] = {
    LetterStatus.NEW: {
        "category": "",
        "triage_note": "",
        "triaged_by": "",
        "triaged_at": None,
        **_REMEDIATION,
        **_VALIDATION,
        **_AFTER,
    },
    LetterStatus.TRIAGED: {**_REMEDIATION, **_VALIDATION},
    LetterStatus.REMEDIATED: _VALIDATION,
}


def locked(letter_id: int) -> DeadLetter:
    """Return the letter, locked until the transaction ends. Raises DeadLetter.DoesNotExist."""
    return DeadLetter.objects.select_for_update().get(pk=letter_id)


def locked_many(letter_ids: Collection[int]) -> list[DeadLetter]:
    """Return the letters that exist, locked in the order of their ids."""
    return list(DeadLetter.objects.filter(pk__in=letter_ids).select_for_update().order_by("pk"))


def move(
    letter: DeadLetter,
    to: LetterStatus,
    action: LetterAction,
    actor: str,
    reason: str = "",
    *,
    context: Mapping[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Move a locked letter and add a line to its timeline. The object is not refreshed.

    Raises RuntimeError, and the database its own errors, when the move is not possible.
    """
    _update_locked(letter, **_all_changes(to, changes), status=to)
    note(letter.pk, action, actor, reason, context)


def touch(letter: DeadLetter) -> None:
    """Count a version of a locked letter: forms that were opened before are refused."""
    _update_locked(letter, status=letter.status)


def _update_locked(letter: DeadLetter, **changes: Any) -> None:
    updated = DeadLetter.objects.filter(pk=letter.pk, status=letter.status).update(**changes)
    if updated != 1:
        raise RuntimeError(f"a guarded update of a dead letter touched {updated} rows")


@dataclass(frozen=True, slots=True)
class Step:
    """A move with its evidence.

    `refuse` returns why a letter in the right state must not move, or "".
    """

    to: LetterStatus
    action: LetterAction
    actor: str
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    refuse: Callable[[DeadLetter], str] = lambda _: ""

    def take(
        self, letter_id: int, allowed: Collection[LetterStatus], row_version: int | None, done: str
    ) -> Result:
        """Move one letter, or add the refusal to its timeline."""
        with transaction.atomic():
            letter = locked(letter_id)
            refused = refusal(letter, allowed, row_version)
            if not refused and (problem := self.refuse(letter)):
                refused = Result(False, problem)
            if refused:
                return refuse(letter, self.actor, refused)
            move(letter, self.to, self.action, self.actor, self.reason, context=self.context, **self.changes)
        return Result(True, done)

    def take_many(self, letter_ids: Collection[int], allowed: Collection[LetterStatus], of: int = 0) -> Tally:
        """Move the letters of a set that may move, a few hundred to a transaction; tally the others.

        `of` is the size of the whole set, where these letters are a part of it.
        """
        tally = Tally()
        for part in parts(letter_ids):
            with transaction.atomic():
                found = locked_many(part)
                late = invalid_transition_reasons(found, allowed, of=of or len(set(letter_ids)))
                going = []
                for letter in found:
                    if why := late.get(letter.pk) or self.refuse(letter):
                        tally.skipped_ids[letter.pk] = why
                    else:
                        going.append(letter.pk)
                updated = DeadLetter.objects.filter(pk__in=going, status__in=allowed).update(
                    **_all_changes(self.to, self.changes), status=self.to
                )
                if updated != len(going):
                    raise RuntimeError(f"{len(going)} locked letters, {updated} updated")
                note_many(going, self.action, self.actor, self.reason, self.context)
            tally.done_ids += going
            tally.skip_missing(part, found)
        return tally


def refuse(letter: DeadLetter, actor: str, refused: Result) -> Result:
    """Add a refusal to the letter's timeline and return it."""
    note(letter.pk, LetterAction.REFUSED, actor, refused.message)
    return refused


def postponed_retention() -> dict[str, Any]:
    """Return the change that keeps a letter with an old failure from being archived at once."""
    return {"kept_until": timezone.now() + timedelta(days=settings.DLQ_MAX_AGE_DAYS)}


def postpone_retention(letter_ids: Collection[int]) -> None:
    """Keep new letters that the retention would take within WARNED_AHEAD, and so unannounced.

    For letters on which work ended without closing them. Skips letters that another transaction has
    locked. Part of the caller's transaction.
    """
    soon = timezone.now() + WARNED_AHEAD
    going = DeadLetter.objects.filter(
        Q(kept_until=None) | Q(kept_until__lt=soon),
        status=LetterStatus.NEW,
        last_failure_at__lt=soon - timedelta(days=settings.DLQ_MAX_AGE_DAYS),
    ).select_for_update(skip_locked=True)
    for part in parts(letter_ids):
        locked_ids = list(going.filter(pk__in=part).values_list("pk", flat=True))
        DeadLetter.objects.filter(pk__in=locked_ids).update(**postponed_retention())


def note(
    letter_id: int,
    action: LetterAction,
    actor: str,
    reason: str = "",
    context: Mapping[str, Any] | None = None,
) -> None:
    """Add a line to a letter's timeline."""
    note_many([letter_id], action, actor, reason, context)


def note_many(
    letter_ids: Collection[int],
    action: LetterAction,
    actor: str,
    reason: str = "",
    context: Mapping[str, Any] | None = None,
) -> None:
    """Add the same line to the timelines of many letters."""
    line = {
        "action": action,
        "actor": actor[:255],
        "source": source_of(actor),
        "reason": clean(reason, 2000),
        "context": clean_context(context or {}),
    }
    DeadLetterEvent.objects.bulk_create(DeadLetterEvent(letter_id=pk, **line) for pk in letter_ids)


def refusal(letter: DeadLetter, allowed: Collection[LetterStatus], row_version: int | None) -> Result | None:
    """Return why a step cannot be taken from the letter's present state, or None."""
    if late := invalid_transition_reasons([letter], allowed):
        return Result(False, late[letter.pk])
    if row_version is not None and letter.row_version != row_version:
        last = _last_steps([letter.pk]).get(letter.pk)
        by_whom = f" by {last.actor} at {_minute(last)}" if last else ""
        return Result(False, f"it was changed{by_whom} after you opened it: reload and try again")
    return None


def invalid_transition_reasons(
    letters: Iterable[DeadLetter], allowed: Collection[LetterStatus], *, of: int = 1
) -> dict[int, str]:
    """Return, by letter, why a step cannot be taken from its present state.

    Letters that can take it are left out. `of` is the size of the whole set. Reasons name the last step and
    its actor in sets of a FEW letters; in larger ones they give the state alone, so that equal reasons can be
    counted.
    """
    reasons = {
        letter.pk: invalid_transition_reason(LetterStatus(letter.status), allowed, letter.state_word)
        for letter in letters
        if letter.status not in allowed
    }
    for pk, last in (_last_steps(reasons) if of <= FEW else {}).items():
        reasons[pk] += f" ({last.get_action_display().lower()} by {last.actor} at {_minute(last)})"
    return reasons


def invalid_transition_reason(status: LetterStatus, allowed: Collection[LetterStatus], word: str = "") -> str:
    """Return why a step that needs other states cannot be taken from this one, shown as `word`."""
    now = (word or status.label).lower()
    if set(allowed) <= set(CLOSED_LETTER):
        return f"it is {now}, not {' or '.join(wanted.label.lower() for wanted in allowed)}"
    if any(_ORDER.index(wanted) < _ORDER.index(status) for wanted in allowed):
        return f"it is already {now}"
    return f"it is {now}: {_FIRST[status]}" if status in _FIRST else f"it is {now}"


def _all_changes(to: LetterStatus, changes: Mapping[str, Any]) -> dict[str, Any]:
    closing = {"closed_at": timezone.now() if to in CLOSED_LETTER else None}
    return {**_CLEARED.get(to, {}), **closing, **changes}


def _last_steps(letter_ids: Collection[int]) -> dict[int, DeadLetterEvent]:
    steps = DeadLetterEvent.objects.filter(letter__in=letter_ids).exclude(action__in=NO_STEP)
    return {step.letter_id: step for step in steps.order_by("letter_id", "-id").distinct("letter_id")}


def _minute(event: DeadLetterEvent) -> str:
    return f"{event.created_at:%Y-%m-%d %H:%M} UTC"
