"""Resolve the letters that a batch verified, if its submitter said the cause is fixed.

The batch's evidence is the resolution of its letters, and of their groups once no letter is open.
(guarantee G270)
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from deadletters import groups, workflow
from deadletters.batches.store import locked
from deadletters.models import DeadLetter, DeadLetterGroup, ReplayBatch, ReplayItem
from deadletters.ports import recovery
from deadletters.states import GroupStatus, ItemStatus, LetterStatus
from deadletters.types import Failed

LATE_AT_ONCE = 50  # letters that one run of maintenance looks at


def resolve_verified(batch: ReplayBatch, letter_ids: Sequence[int]) -> None:
    """Resolve the verified ones of a locked batch's letters, if the batch resolves at all.

    Part of the caller's transaction.
    """
    if batch.resolves_verified:
        resolve(letter_ids, actor=actor_of(batch), resolution=batch.evidence_note or batch.evidence_link)


def resolve(letter_ids: Sequence[int], *, actor: str, resolution: str) -> int:
    """Resolve verified letters, then groups without open letters; return how many letters."""
    verified = DeadLetter.objects.filter(
        pk__in=letter_ids, status=LetterStatus.VERIFYING, verified_at__isnull=False
    )
    going = list(verified.values_list("pk", flat=True))
    done = workflow.resolve_many(going, actor=actor, resolution=resolution).done_ids if going else []
    finished = DeadLetterGroup.objects.filter(
        pk__in=DeadLetter.objects.filter(pk__in=done).values("group_id"),
        open_count=0,
        status__in=(GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED),
    )
    for group_id in finished.order_by("pk").values_list("pk", flat=True):
        groups.resolve_group(group_id, actor=actor, reason=resolution)
    return len(done)


def resolve_late() -> None:
    """Resolve letters of such batches whose proof came after their replay was collected.

    A message whose delivery was uncertain is proven, or decided about by an operator, later.
    """
    items = ReplayItem.objects.filter(
        batch__resolves_verified=True,
        status=ItemStatus.SUCCEEDED,
        letter__status=LetterStatus.VERIFYING,
        letter__is_escalated=False,
    ).select_related("letter", "batch")
    port = recovery()
    # In random order: the first ones may wait for ever.
    for item in items.order_by("?")[:LATE_AT_ONCE]:
        letter = item.letter
        if letter.verified_at is None:
            checks = port.verify(Failed(letter.job_id, letter.stage))
            # What is still waited for adds no line to the timeline.
            if any(check.is_waiting and not check.ok for check in checks):
                continue
            workflow.verify(letter.pk, actor=actor_of(item.batch))
        with transaction.atomic():
            resolve_verified(locked(item.batch_id), [letter.pk])


def actor_of(batch: ReplayBatch) -> str:
    """Return the actor of a batch's steps in the timelines of its letters."""
    return f"{batch.requested_by} (batch {batch.pk})"
