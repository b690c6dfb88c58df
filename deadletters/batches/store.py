"""Guarded writes of batches: locked first, counts checked, each move a line of the timeline."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import alerts, workflow
from deadletters.models import DeadLetter, ReplayBatch, ReplayBatchEvent, ReplayItem
from deadletters.states import BatchStatus, ItemStatus, LetterAction, LetterStatus
from deadletters.transitions import Step
from deadletters.types import SYSTEM, Result, source_of

log = structlog.get_logger(__name__)

AGGREGATE = MESSAGE = "replay_batch"
QUEUE = "stages"
OVERRULED = ~Q(override_reason="")  # letters with failed checks that an operator overruled
NO_EVIDENCE = "evidence is required: a link to a ticket, or what was done about the failures"


def locked(batch_id: int) -> ReplayBatch:
    """Return the batch, locked until the transaction ends. A batch is locked before its letters."""
    return ReplayBatch.objects.select_for_update().get(pk=batch_id)


def end_item(item_id: int, before: ItemStatus, to: ItemStatus, detail: str, **more: Any) -> bool:
    """Record the outcome of an item; return False if it is no longer in `before`."""
    item = ReplayItem.objects.filter(pk=item_id, status=before)
    ended = {"status": to, "detail": clean(detail, 1000), "finished_at": timezone.now(), **more}
    return item.update(**ended) == 1


def set_status(batch: ReplayBatch, to: BatchStatus, actor: str, reason: str, **changes: Any) -> None:
    """Move a locked batch and add a line to its timeline."""
    updated = ReplayBatch.objects.filter(pk=batch.pk, status=batch.status).update(
        status=to, status_reason=clean(reason, 1000), **changes
    )
    if updated != 1:
        raise RuntimeError(f"a guarded update of a replay batch touched {updated} rows")
    note(batch, to.value, actor, reason)
    log.info("replay_batch", batch=batch.pk, status=to.value, actor=actor)


def unqueue(batch: ReplayBatch, actor: str, reason: str) -> None:
    """Take the letters that wait for this batch's replay out of its queue."""
    ready = dict(batch.items.filter(status=ItemStatus.READY).values_list("letter_id", "pk"))
    step = Step(LetterStatus.VALIDATED, LetterAction.UNQUEUED, actor, reason)
    step.take_many(ready, (LetterStatus.REPLAY_PENDING,))
    batch.items.filter(pk__in=ready.values()).update(status=ItemStatus.PENDING)


def is_large(letters: int) -> bool:
    """Return whether a batch of so many letters needs approval."""
    return letters > int(settings.REPLAY_APPROVAL_ABOVE)


def validated_now() -> QuerySet[DeadLetter]:
    """Return the validated letters whose validation is not stale."""
    since = timezone.now() - workflow.VALID_FOR
    return DeadLetter.objects.filter(status=LetterStatus.VALIDATED, validated_at__gt=since)


def overruled_by_hand(batch: ReplayBatch) -> QuerySet[ReplayItem]:
    """Return the items that keep an override which an operator gave their letter.

    A batch with an override of its own keeps none: it validates every letter itself.
    """
    if batch.override_reason:
        return batch.items.none()
    return batch.items.filter(status=ItemStatus.PENDING, letter__in=validated_now().filter(OVERRULED))


def refusal(
    batch: ReplayBatch, allowed: Collection[BatchStatus], row_version: int | None = None
) -> Result | None:
    if batch.status not in allowed:
        last = batch.events.order_by("-id").first()
        by_whom = f" by {last.actor} at {last.created_at:%Y-%m-%d %H:%M} UTC" if last else ""
        return Result(False, f"the batch is {batch.get_status_display().lower()}{by_whom}")
    if row_version is not None and batch.row_version != row_version:
        return Result(False, "it was changed after you opened it: reload and try again")
    return None


def note(batch: ReplayBatch, action: str, actor: str, reason: str) -> None:
    ReplayBatchEvent.objects.create(
        batch=batch, action=action, actor=actor[:255], source=source_of(actor), reason=clean(reason, 2000)
    )


def stop(batch: ReplayBatch, reason: str) -> None:
    """Stop a locked batch that runs or is paused, unless all its items have begun."""
    if batch.status not in {BatchStatus.RUNNING, BatchStatus.PAUSED}:
        return
    if not batch.items.filter(status__in=(ItemStatus.PENDING, ItemStatus.READY)).exists():
        return
    set_status(batch, BatchStatus.STOPPED, SYSTEM, reason)
    unqueue(batch, SYSTEM, f"batch {batch.pk} stopped")
    alerts.tell(
        "batch_stopped",
        key=f"batch-stopped:{batch.pk}:{batch.row_version}",
        batch=batch.pk,
        reason=reason,
        path=alerts.page("replaybatch", batch.pk),
    )
