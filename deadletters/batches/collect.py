"""Collect the outcomes of replayed items, and stop the batch if one of them requires it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog
from django.db import transaction

from deadletters import workflow
from deadletters.batches.closing import resolve_verified
from deadletters.batches.store import end_item, locked, stop
from deadletters.models import DeadLetter, DeadLetterEvent, ReplayItem
from deadletters.states import ItemStatus, LetterAction, LetterStatus

log = structlog.get_logger(__name__)

SETTLED_AT_ONCE = 50  # outcomes a commit

_AT_WORK, _GOOD = ItemStatus.REPLAYING, ItemStatus.SUCCEEDED
_ENDS = (LetterAction.SUCCEEDED, LetterAction.FAILED_AGAIN, LetterAction.DISCARDED)


def settle(batch_id: int, renew: Callable[[], object]) -> None:
    """Record the outcomes of jobs that ended; stop the batch if one of them requires it."""
    items = list(ReplayItem.objects.filter(batch_id=batch_id, status=_AT_WORK).order_by("id"))
    if not items:
        return
    ends = _ends_of(items)
    ended = [item for item in items if item.pk in ends]
    for start in range(0, len(ended), SETTLED_AT_ONCE):
        renew()
        part = [(item, *_outcome(item, ends[item.pk])) for item in ended[start : start + SETTLED_AT_ONCE]]
        # A failure and the stop it causes are one commit: neither is lost to a pause or a crash.
        with transaction.atomic():
            batch = locked(batch_id)
            reasons = [
                _why_stop(item, ends[item.pk], detail)
                for item, outcome, detail in part
                if end_item(item.pk, _AT_WORK, outcome, detail, failed_group_id=_group_of(ends[item.pk]))
                and outcome == ItemStatus.FAILED
            ]
            if reason := next(filter(None, reasons), ""):
                stop(batch, reason)
            resolve_verified(batch, [item.letter_id for item, outcome, _ in part if outcome == _GOOD])


def _why_stop(item: ReplayItem, end: DeadLetterEvent, detail: str) -> str:
    """Return why the batch must stop after this recorded failure, or an empty string."""
    letter = f"dead letter {item.letter_id}"
    if item.is_canary:
        return f"{letter}, a canary, failed again: {detail}"
    group_id = _group_of(end)
    if group_id == item.group_id:
        return f"the same failure came back: {letter}, {detail}"
    others = ReplayItem.objects.filter(batch_id=item.batch_id, status=ItemStatus.FAILED).exclude(pk=item.pk)
    if not others.filter(failed_group_id=group_id).exists():
        return ""
    if group_id is None:
        return f"a second dead letter was replayed without effect: {letter}, {detail}"
    return f"a second dead letter failed with the failure of group {group_id}: {letter}, {detail}"


def _group_of(end: DeadLetterEvent) -> int | None:
    """Return the group of a replay's new failure; None if the job did not fail."""
    group_id: int | None = end.context.get("group")
    return group_id


def _ends_of(items: Sequence[ReplayItem]) -> dict[int, DeadLetterEvent]:
    """Return, by item, the first event after its replay that ends it."""
    since = {item.letter_id: item for item in items}
    events = DeadLetterEvent.objects.filter(letter_id__in=list(since), action__in=_ENDS).order_by("-id")
    found: dict[int, DeadLetterEvent] = {}
    for event in events:
        item = since[event.letter_id]
        if item.started_at is not None and event.created_at > item.started_at:
            found[item.pk] = event  # newest first: the earliest stays
    return found


def _outcome(item: ReplayItem, end: DeadLetterEvent) -> tuple[ItemStatus, str]:
    if end.action == LetterAction.DISCARDED:
        return ItemStatus.ENDED, end.reason
    if end.action == LetterAction.FAILED_AGAIN or end.context.get("later_stage"):
        return ItemStatus.FAILED, end.reason
    try:
        checked = workflow.verify(item.letter_id, actor=f"batch {item.batch_id}")
    except Exception as error:
        log.exception("replay_batch_verification_failed", letter=item.letter_id)
        return ItemStatus.FAILED, f"the verification itself failed: {type(error).__name__}"
    if checked.ok:
        return ItemStatus.SUCCEEDED, checked.message
    now = DeadLetter.objects.filter(pk=item.letter_id).values_list("status", "verified_at").first()
    if now and (now[0] == LetterStatus.RESOLVED or now[1]):
        return ItemStatus.SUCCEEDED, "an operator has verified it"
    if checked.is_waiting:
        return ItemStatus.SUCCEEDED, checked.message
    return ItemStatus.FAILED, checked.message
