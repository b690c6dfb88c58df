"""Reopen a discarded dead letter whose job is still dead-lettered where the letter says."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Q, Subquery

from criticizer.wording import plural_count
from deadletters import groups, transitions
from deadletters.models import DeadLetter, DeadLetterEvent, DeadLetterGroup
from deadletters.ports import recovery
from deadletters.states import OPEN_LETTER, GroupStatus, LetterAction, LetterStatus
from deadletters.transitions import Step
from deadletters.types import CheckKind, Failed, Tally

_ALREADY_OPEN = "another dead letter of its job and stage is open"
# Circuits, artifacts and deliveries matter to a replay, not to a reopening.
_OF_JOB = (CheckKind.JOB, CheckKind.VERSION)


def reopen_many(letter_ids: Collection[int], *, actor: str, reason: str) -> Tally:
    """Make the discarded letters of a set new again, with every step before them.

    Skips letters whose job is not dead-lettered at their stage any more, and those for whose failure
    another letter stands. Resolved groups open with them. Raises ValueError without a reason.
    """
    transitions.require_reason(reason)
    total = Tally()
    for part in transitions.parts(letter_ids):
        total.add(_reopen_part(part, actor, reason, of=len(set(letter_ids))))
    return total


def why_not_reopened(letter_ids: Collection[int]) -> dict[int, str]:
    """Return, by letter, why it cannot be reopened now; letters that can be are left out."""
    return {pk: why for part in transitions.parts(letter_ids) for pk, why in _reasons(part).items()}


def open_groups_of(letter_ids: Collection[int], *, actor: str, reason: str) -> None:
    """Open the resolved groups of letters that opened, in the same transaction.

    The letters' trigger has locked the groups. Ignored groups stay ignored.
    """
    back = DeadLetter.objects.filter(pk__in=letter_ids, status__in=OPEN_LETTER).values("group_id")
    resolved = DeadLetterGroup.objects.filter(pk__in=back, status=GroupStatus.RESOLVED).order_by("pk")
    for group_id in resolved.values_list("pk", flat=True):
        groups.reopen(group_id, actor=actor, reason=reason)


def _reopen_part(part: Sequence[int], actor: str, reason: str, *, of: int) -> Tally:
    try:
        with transaction.atomic():
            reasons = _reasons(part)
            step = Step(
                LetterStatus.NEW,
                LetterAction.REOPENED,
                actor,
                reason,
                transitions.postponed_retention(),
                refuse=lambda letter: reasons.get(letter.pk, ""),
            )
            tally = step.take_many(part, (LetterStatus.DISCARDED,), of=of)
            line = f"{plural_count(len(tally.done_ids), 'dead letter')} reopened: {reason}"
            open_groups_of(tally.done_ids, actor=actor, reason=line)
            return tally
    except IntegrityError:  # one of them failed again at this moment: reopened singly, each shows which
        if len(part) == 1:
            return Tally(skipped_ids={part[0]: _ALREADY_OPEN})
        tally = Tally()
        for letter_id in part:
            tally.add(_reopen_part([letter_id], actor, reason, of=of))
        return tally


def _reasons(part: Sequence[int]) -> dict[int, str]:
    edited = DeadLetterEvent.objects.filter(letter=OuterRef("pk"), action=LetterAction.EDITED)
    of_job = DeadLetter.objects.filter(job=OuterRef("job")).exclude(pk=OuterRef("pk"))
    is_later = Q(last_failure_at__gt=OuterRef("last_failure_at")) | Q(
        last_failure_at=OuterRef("last_failure_at"), pk__gt=OuterRef("pk")
    )
    later = of_job.filter(is_later).order_by("-last_failure_at", "-pk")
    letters = DeadLetter.objects.filter(pk__in=part, status=LetterStatus.DISCARDED).annotate(
        successor=Subquery(edited.order_by("-pk").values("context__successor")[:1]),
        open_id=Subquery(of_job.filter(stage=OuterRef("stage"), status__in=OPEN_LETTER).values("pk")[:1]),
        later_id=Subquery(later.values("pk")[:1]),
        later_stage=Subquery(later.values("stage")[:1]),
    )
    # Of one job, one letter at most is the last that failed: a survey asks once a job.
    failed = [Failed(letter.job_id, letter.stage) for letter in letters]
    checks = recovery().survey(failed, restart=None)
    reasons = {}
    for letter in letters:
        of_its_job = (check for check in checks[letter.job_id] if check.kind in _OF_JOB)
        problem = next((check.message for check in of_its_job if not check.ok), "")
        if letter.successor:
            reasons[letter.pk] = f"its data was edited: it was replaced by dead letter {letter.successor}"
        elif letter.open_id:
            reasons[letter.pk] = f"dead letter {letter.open_id} of the same job and stage is open"
        elif letter.later_id:
            reasons[letter.pk] = (
                f"its job failed later, in {letter.later_stage}: see dead letter {letter.later_id}"
            )
        elif problem:
            reasons[letter.pk] = problem
    others = DeadLetter.objects.filter(pk__in=part).exclude(status=LetterStatus.DISCARDED)
    for pk, status in others.values_list("pk", "status"):
        reasons[pk] = transitions.invalid_transition_reason(LetterStatus(status), (LetterStatus.DISCARDED,))
    return reasons
