"""Take a discard back: the letter begins anew where its job still waits for it (000, 8.5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import structlog
from django.db import IntegrityError, transaction

from criticizer.db import prepared
from criticizer.wording import plural_count
from deadletters import groups, transitions
from deadletters.models import DeadLetter, DeadLetterGroup
from deadletters.ports import recovery
from deadletters.states import OPEN_LETTER, GroupStatus, LetterAction, LetterStatus
from deadletters.types import CheckKind, Failed, Result, Tally
from deadletters.workflow.base import add, refuse

log = structlog.get_logger(__name__)

_OPEN_ALREADY = "another letter of its job and stage is open"
# What the survey says of the job itself; circuits, artifacts and deliveries are a replay's business.
_OF_JOB = (CheckKind.JOB, CheckKind.VERSION)
# Of each letter: on which one it lives on, which of its job and stage is open, which failed later.
_OTHERS = f"""
SELECT l.id, e.successor, o.id AS open, f.id AS later, f.stage AS later_stage
  FROM dead_letters l
  LEFT JOIN LATERAL (
    SELECT context ->> 'successor' AS successor FROM dead_letter_events
     WHERE letter_id = l.id AND action = 'edited' ORDER BY id DESC LIMIT 1) e ON true
  LEFT JOIN LATERAL (
    SELECT id FROM dead_letters
     WHERE job_id = l.job_id AND stage = l.stage AND id <> l.id
       AND status IN {prepared.sql_list(OPEN_LETTER)} LIMIT 1) o ON true
  LEFT JOIN LATERAL (
    SELECT id, stage FROM dead_letters
     WHERE job_id = l.job_id AND (last_failure_at, id) > (l.last_failure_at, l.id)
     ORDER BY last_failure_at DESC, id DESC LIMIT 1) f ON true
 WHERE l.id = ANY(%(ids)s)"""  # noqa: S608


def reopen(letter_id: int, *, actor: str, reason: str, row_version: int | None = None) -> Result:
    """Take the discard of a letter back: it is new again, with every step before it.

    Refused unless its job is still dead-lettered where the letter says, and while another letter
    stands for that. A resolved group opens with it. Raises ValueError without a reason.
    """
    transitions.require_reason(reason)
    try:
        with transaction.atomic():
            letter = transitions.locked(letter_id)
            refused = transitions.refusal(letter, (LetterStatus.DISCARDED,), row_version)
            if refused is None and (problem := why_not_reopened([letter_id]).get(letter_id)):
                refused = Result(False, problem)
            if refused:
                return refuse(letter, actor, refused)
            transitions.move(
                letter,
                LetterStatus.NEW,
                LetterAction.REOPENED,
                actor,
                reason,
                **transitions.postponed_retention(),
            )
            open_groups_of([letter_id], actor=actor, reason=f"letter {letter_id} was reopened: {reason}")
    except IntegrityError:
        return Result(False, _OPEN_ALREADY)
    return Result(True, "reopened")


def reopen_many(letter_ids: Collection[int], *, actor: str, reason: str) -> Tally:
    """Take the discards of a set of letters back. Raises ValueError without a reason."""
    transitions.require_reason(reason)
    total = Tally("reopened")
    wanted = sorted(set(letter_ids))
    for start in range(0, len(wanted), transitions.AT_ONCE):
        add(total, _reopen_part(wanted[start : start + transitions.AT_ONCE], actor, reason, of=len(wanted)))
    return total


def why_not_reopened(letter_ids: Collection[int]) -> dict[int, str]:
    """Return, by letter, why a discard cannot be taken back now; letters that can be are left out."""
    wanted = sorted(set(letter_ids))
    reasons: dict[int, str] = {}
    for start in range(0, len(wanted), transitions.AT_ONCE):
        reasons |= _why_not(wanted[start : start + transitions.AT_ONCE])
    return reasons


def open_groups_of(letter_ids: Collection[int], *, actor: str, reason: str) -> None:
    """Open the resolved groups to which open letters came back, in the transaction that opened them.

    The letters' trigger has locked the groups. An ignored one stays ignored, as at any recurrence.
    """
    back = DeadLetter.objects.filter(pk__in=letter_ids, status__in=OPEN_LETTER).values("group_id")
    resolved = DeadLetterGroup.objects.filter(pk__in=back, status=GroupStatus.RESOLVED).order_by("pk")
    for group_id in resolved.values_list("pk", flat=True):
        groups.reopen(group_id, actor=actor, reason=reason)


# -- inside -----------------------------------------------------------------------------------


def _reopen_part(part: Sequence[int], actor: str, reason: str, *, of: int) -> Tally:
    try:
        with transaction.atomic():
            problems = _why_not(part)
            tally = transitions.move_many(
                part,
                (LetterStatus.DISCARDED,),
                LetterStatus.NEW,
                LetterAction.REOPENED,
                actor,
                reason,
                verb="reopened",
                changes=transitions.postponed_retention(),
                refuse=lambda letter: problems.get(letter.pk, ""),
                of=of,
            )
            said = f"{plural_count(len(tally.done_ids), 'letter')} reopened: {reason}"
            open_groups_of(tally.done_ids, actor=actor, reason=said)
            return tally
    except IntegrityError:  # a failure was faster for one of them: by itself, each shows which
        tally = Tally("reopened")
        if len(part) == 1:
            tally.skip(part[0], _OPEN_ALREADY)
            return tally
        for letter_id in part:
            add(tally, _reopen_part([letter_id], actor, reason, of=of))
        return tally


def _why_not(part: Sequence[int]) -> dict[int, str]:
    letters = DeadLetter.objects.filter(pk__in=part, status=LetterStatus.DISCARDED)
    found = {row["pk"]: row for row in letters.values("pk", "job_id", "stage")}
    # Of one job, one letter at most is the last that failed: the survey is asked once a job.
    checks = recovery().survey([Failed(row["job_id"], row["stage"]) for row in found.values()], restart=None)
    reasons = {}
    for others in prepared.rows(_OTHERS, {"ids": list(found)}):
        job_id = found[others["id"]]["job_id"]
        failed = (check.message for check in checks[job_id] if check.kind in _OF_JOB and not check.ok)
        if reason := _by_others(others) or next(failed, ""):
            reasons[others["id"]] = reason
    present = DeadLetter.objects.filter(pk__in=part).exclude(status=LetterStatus.DISCARDED)
    for pk, status in present.values_list("pk", "status"):
        reasons[pk] = transitions.invalid_transition_reason(LetterStatus(status), (LetterStatus.DISCARDED,))
    return reasons


def _by_others(others: dict[str, Any]) -> str:
    if others["successor"]:
        return f"its data was edited: it lives on as letter {others['successor']}"
    if others["open"]:
        return f"letter {others['open']} of the same job and stage is open"
    if others["later"]:
        return f"its job failed later, in {others['later_stage']}: see letter {others['later']}"
    return ""
