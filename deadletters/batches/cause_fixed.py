"""Replay of a group whose cause is fixed, by a batch that takes all six steps.

The batch resolves the letters that it verified. Code defects and wrong data keep the form of each step: there
every letter has a cause of its own. (guarantees G270, G271)
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from deadletters import transitions
from deadletters.batches.approval import needs_approval, submit
from deadletters.batches.closing import resolve
from deadletters.batches.drafts import MAX_ITEMS, draft
from deadletters.categories import suggested_category
from deadletters.models import MIN_REASON_CHARS, DeadLetter, DeadLetterGroup, ReplayBatch, ReplayItem
from deadletters.ports import recovery
from deadletters.states import BEFORE_REPLAY, BatchStatus, Category, ItemStatus, LetterStatus
from deadletters.types import Result

QUICK = (Category.TRANSIENT, Category.AUTH_CONFIG)  # categories whose cause is fixed once for all letters
_SUBMITTED = (BatchStatus.AWAITING, BatchStatus.RUNNING, BatchStatus.PAUSED, BatchStatus.STOPPED)
_UNENDED = (ItemStatus.PENDING, ItemStatus.READY, ItemStatus.REPLAYING)
NO_TEXT = Result(False, "say what was done about the cause, or link a ticket")


@dataclass(frozen=True, slots=True)
class Started:
    """Result of a start; `batch_id` is None if nothing is replayed.

    `is_running` is False as well while the batch waits for approval.
    """

    result: Result
    batch_id: int | None = None
    is_running: bool = False


def replayable(group: DeadLetterGroup) -> QuerySet[DeadLetter]:
    """Return the open letters of a group that `replay_fixed` replays.

    Not data and code defects, letters whose replay has begun, or those of a submitted batch.
    """
    in_batch = ReplayItem.objects.filter(
        letter=OuterRef("pk"), status__in=_UNENDED, batch__status__in=_SUBMITTED
    )
    return _quick(group).filter(status__in=BEFORE_REPLAY).exclude(Exists(in_batch))


def _quick(group: DeadLetterGroup) -> QuerySet[DeadLetter]:
    triaged_as = [*QUICK, ""] if suggested_category(group.error_class) in QUICK else [*QUICK]
    return DeadLetter.objects.filter(group=group, category__in=triaged_as)


def replay_fixed(group_id: int, *, actor: str, evidence: str) -> Started:
    """Replay the open letters of a group, and resolve them once they are verified.

    `evidence` is stored as the evidence of the remediation and as the resolution. Many letters need a
    second person's approval. Letters that are verified already are resolved now. Calling it twice replays
    nothing twice.
    """
    text = evidence.strip()
    if len(text) < MIN_REASON_CHARS:
        return Started(NO_TEXT)
    with transaction.atomic():
        group = DeadLetterGroup.objects.select_for_update(no_key=True).get(pk=group_id)
        newest = replayable(group).order_by("-last_failure_at", "-id")
        letters = list(newest.values_list("pk", flat=True)[:MAX_ITEMS])
        verified = _quick(group).filter(status=LetterStatus.VERIFYING, verified_at__isnull=False)
        resolved = resolve(
            list(verified.values_list("pk", flat=True)[:MAX_ITEMS]), actor=actor, resolution=text
        )
        if not letters:
            words = "none of its open dead letters can be replayed this way: see the next steps"
            return Started(Result(True, f"{resolved} resolved") if resolved else Result(False, words))
        return _start(letters, {"groups": [group_id]}, actor, text)


def give_up_recipients(letter_id: int, *, actor: str, reason: str, row_version: int | None = None) -> Result:
    """End a review as delivered, without the recipients whose server refused the message.

    Refused when anything else failed. The deliveries and the replay change in one commit.
    """
    transitions.require_reason(reason)
    with transaction.atomic():
        letter = transitions.locked(letter_id)
        if refused := transitions.refusal(letter, BEFORE_REPLAY, row_version):
            return refused
        if problem := recovery().why_not_give_up(letter.job_id):
            return Result(False, problem)
        recovery().give_up(letter.job_id, actor=actor, reason=reason)
        started = _start([letter_id], {"picked": 1}, actor, f"recipient given up: {reason.strip()}")
    return Result(started.result.ok, f"recipient given up; batch {started.batch_id} ends the review")


def _start(letters: list[int], chosen_by: dict[str, object], actor: str, text: str) -> Started:
    batch: ReplayBatch = draft(
        filter=chosen_by, ids=letters, actor=actor, reason=text, evidence_note=text, resolves_verified=True
    )
    waits = needs_approval(batch)
    result = submit(batch.pk, actor=actor)
    return Started(result, batch.pk, is_running=result.ok and not waits)
