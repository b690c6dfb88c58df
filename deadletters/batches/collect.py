"""What became of the items at work: their outcomes, and whether one of them stops the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog
from django.db import transaction
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import workflow
from deadletters.batches.store import locked, stop
from deadletters.models import DeadLetter, DeadLetterEvent, ReplayItem
from deadletters.states import ItemStatus, LetterAction, LetterStatus

log = structlog.get_logger(__name__)

SETTLED_AT_ONCE = 50  # outcomes a commit

_I, _L, _A = ItemStatus, LetterStatus, LetterAction
_ENDS = (_A.SUCCEEDED, _A.FAILED_AGAIN, _A.DISCARDED)


def settle(batch_id: int, renew: Callable[[], object]) -> None:
    """Write down the outcomes of jobs that ended; stop the batch where one of them must."""
    items = list(ReplayItem.objects.filter(batch_id=batch_id, status=_I.REPLAYING).order_by("id"))
    if not items:
        return
    ends = _ends_of(items)
    ended = [item for item in items if item.pk in ends]
    for start in range(0, len(ended), SETTLED_AT_ONCE):
        renew()
        part = [(item, *_outcome(item, ends[item.pk])) for item in ended[start : start + SETTLED_AT_ONCE]]
        # A failure and the stop that it asks for, or neither: a pause or the end of this process
        # may come before or after, and the reason is not lost.
        with transaction.atomic():
            batch = locked(batch_id)
            reasons = [
                _why_stop(item, ends[item.pk], detail)
                for item, outcome, detail in part
                if _write(item, outcome, detail, _group_of(ends[item.pk])) and outcome == _I.FAILED
            ]
            if reason := next(filter(None, reasons), ""):
                stop(batch, reason)


def _why_stop(item: ReplayItem, end: DeadLetterEvent, detail: str) -> str:
    """Return why the batch must stop when this item, which is written down, failed again, or ""."""
    letter = f"letter {item.letter_id}"
    if item.is_canary:
        return f"{letter} of those that went first failed again: {detail}"
    group_id = _group_of(end)
    if group_id == item.group_id:
        return f"the same failure came back: {letter}, {detail}"
    others = ReplayItem.objects.filter(batch_id=item.batch_id, status=_I.FAILED).exclude(pk=item.pk)
    if not others.filter(failed_group_id=group_id).exists():
        return ""
    if group_id is None:
        return f"another letter was replayed without its effect: {letter}, {detail}"
    return f"another letter failed into group {group_id}: {letter}, {detail}"


def _group_of(end: DeadLetterEvent) -> int | None:
    """Return the group that a replay failed into; None: the job did not fail."""
    group_id: int | None = end.context.get("group")
    return group_id


def _ends_of(items: Sequence[ReplayItem]) -> dict[int, DeadLetterEvent]:
    """Return, by item, the first line of its letter's timeline after its replay that is an end."""
    since = {item.letter_id: item for item in items}
    events = DeadLetterEvent.objects.filter(letter_id__in=list(since), action__in=_ENDS).order_by("-id")
    found: dict[int, DeadLetterEvent] = {}
    for event in events:
        item = since[event.letter_id]
        if item.started_at is not None and event.created_at > item.started_at:
            found[item.pk] = event  # the earliest one stays
    return found


def _outcome(item: ReplayItem, end: DeadLetterEvent) -> tuple[ItemStatus, str]:
    if end.action == _A.DISCARDED:
        return _I.ENDED, end.reason
    if end.action == _A.FAILED_AGAIN:
        return _I.FAILED, end.reason
    if end.context.get("later_stage"):
        return _I.FAILED, end.reason
    try:
        checked = workflow.verify(item.letter_id, actor=f"batch {item.batch_id}")
    except Exception as error:
        log.exception("replay_batch_verification_failed", letter=item.letter_id)
        return _I.FAILED, f"the verification itself failed: {type(error).__name__}"
    if checked.ok:
        return _I.SUCCEEDED, checked.message
    now = DeadLetter.objects.filter(pk=item.letter_id).values_list("status", "verified_at").first()
    if now and (now[0] == _L.RESOLVED or now[1]):
        return _I.SUCCEEDED, "an operator has verified it"
    if checked.is_waiting:
        return _I.SUCCEEDED, checked.message
    return _I.FAILED, checked.message


def _write(item: ReplayItem, outcome: ItemStatus, detail: str, group_id: int | None) -> bool:
    """Say whether this is news: another look may have been here, with the same outcome."""
    updated = ReplayItem.objects.filter(pk=item.pk, status=_I.REPLAYING).update(
        status=outcome, detail=clean(detail, 1000), failed_group_id=group_id, finished_at=timezone.now()
    )
    return updated == 1
