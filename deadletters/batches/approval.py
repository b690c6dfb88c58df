"""Actions of operators on a batch, from its submission to its end.

Submit, approve, refuse, pause, resume, cancel. (guarantee G69)
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from criticizer.queue import outbox
from criticizer.wording import plural_count
from deadletters import alerts, transitions
from deadletters.batches.store import (
    AGGREGATE,
    MESSAGE,
    NO_EVIDENCE,
    QUEUE,
    is_large,
    locked,
    overruled_by_hand,
    refusal,
    set_status,
    unqueue,
)
from deadletters.models import MIN_REASON_CHARS, ReplayBatch
from deadletters.models.batches import MAKING
from deadletters.states import UNENDED_BATCH, BatchStatus, ItemStatus
from deadletters.types import Result


def needs_approval(batch: ReplayBatch) -> bool:
    """Return whether a second person must approve: many letters, a restart, or overruled checks.

    The batch overrules checks, or an operator overruled those of a letter in it. A batch that was too
    large when it was drafted stays so.
    """
    return is_dangerous(batch) or overruled_by_hand(batch).exists()


def is_dangerous(batch: ReplayBatch) -> bool:
    """Return whether the batch's own size or settings need approval."""
    large = batch.needs_approval or is_large(batch.item_count)
    return bool(large or batch.is_restart or batch.override_reason)


def submit(batch_id: int, *, actor: str) -> Result:
    """Start a draft, or let it wait for approval if it needs one.

    Its submitter attests to its evidence, and is the actor in the timelines of its letters.
    """
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, {BatchStatus.DRAFT}):
            return refused
        if max(len(batch.evidence_link.strip()), len(batch.evidence_note.strip())) < MIN_REASON_CHARS:
            return Result(False, NO_EVIDENCE)
        if needs_approval(batch):
            set_status(batch, BatchStatus.AWAITING, actor, "", requested_by=actor[:255], needs_approval=True)
            _ask_for_approval(batch, actor)
            return Result(True, "submitted: another person must approve it")
        _start(batch, actor, "", requested_by=actor[:255])
    return Result(True, "started")


def _ask_for_approval(batch: ReplayBatch, actor: str) -> None:
    letters = plural_count(batch.item_count, "dead letter")
    start = ", from the first stage" if batch.is_restart else ""
    overruled = ", whatever fails of their checks" if batch.override_reason else ""
    if by_hand := overruled_by_hand(batch).count():
        overruled = f", {by_hand} of them with failed checks overridden by hand"
    alerts.tell(
        "batch_awaiting",
        key=f"batch-awaiting:{batch.pk}",
        batch=batch.pk,
        actor=actor,
        what=f"{letters}{start}{overruled}",
        path=alerts.page("replaybatch", batch.pk),
    )


def makers(batch: ReplayBatch) -> list[str]:
    """Return the people who drafted, configured or submitted a batch, each once, in order."""
    lines = batch.events.filter(action__in=MAKING).order_by("id").values_list("actor", flat=True)
    return list(dict.fromkeys(lines))


def why_not_approve(batch: ReplayBatch, actor: str) -> str:
    """Return why this person cannot approve a batch that waits for it, or an empty string."""
    if actor[:255] == batch.requested_by:
        return "you cannot approve your own batch"
    if actor[:255] in makers(batch):
        return "you drafted or configured this batch and cannot approve it"
    return ""


def approve(batch_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """Start a batch that waits for approval.

    Refused if the actor drafted, configured or submitted it.
    """
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, {BatchStatus.AWAITING}, row_version):
            return refused
        if problem := why_not_approve(batch, actor):
            return Result(False, problem)
        _start(batch, actor, reason, approved_by=actor[:255], approved_at=timezone.now())
    return Result(True, "approved and started")


def pause(batch_id: int, *, actor: str, reason: str = "") -> Result:
    """Replay nothing further until the batch is resumed; running jobs go on."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, {BatchStatus.RUNNING}):
            return refused
        set_status(batch, BatchStatus.PAUSED, actor, reason)
    return Result(True, "paused")


def resume(batch_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """Continue a paused or stopped batch."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, {BatchStatus.PAUSED, BatchStatus.STOPPED}, row_version):
            return refused
        _start(batch, actor, reason)
    return Result(True, "resumed")


def cancel(batch_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """End a batch: what was replayed stays replayed, the other letters return to the operators."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, UNENDED_BATCH, row_version):
            return refused
        count = _end(batch, actor, reason, "the batch was cancelled")
    return Result(True, f"cancelled; {count} dead letters were not replayed")


def refuse(batch_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """End a batch that waits for approval: its letters return to the operators."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, {BatchStatus.AWAITING}, row_version):
            return refused
        why = f"refused by {actor}: {reason}" if reason else f"refused by {actor}"
        count = _end(batch, actor, why, "the batch was refused")
    return Result(True, f"refused; {count} dead letters were not replayed")


def _end(batch: ReplayBatch, actor: str, reason: str, detail: str) -> int:
    """Cancel a locked batch; return how many letters it did not replay."""
    set_status(batch, BatchStatus.CANCELLED, actor, reason)
    unqueue(batch, actor, detail)
    left = batch.items.filter(status=ItemStatus.PENDING)
    transitions.postpone_retention(list(left.values_list("letter_id", flat=True)))
    return left.update(status=ItemStatus.CANCELLED, detail=detail, finished_at=timezone.now())


def _start(batch: ReplayBatch, actor: str, reason: str, **changes: Any) -> None:
    started = {} if batch.started_at else {"started_at": timezone.now()}
    set_status(batch, BatchStatus.RUNNING, actor, reason, next_item_at=None, **started, **changes)
    outbox.publish(AGGREGATE, batch.pk, MESSAGE, QUEUE)
