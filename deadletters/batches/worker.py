"""Runs replay batches: one outbox message a batch, one look a message. (guarantees G67, G68)

Each look collects outcomes, prepares a few letters, and replays what is due at the batch's rate. All state is
in rows: a look may die anywhere, a pause or a cancel may come between any two items, and two looks at once
replay nothing twice, because an item and its letter move together, each from one state.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.db import prepared
from criticizer.queue import outbox
from deadletters import batches, transitions, workflow
from deadletters.batches.closing import actor_of, resolve_late
from deadletters.batches.collect import settle
from deadletters.batches.prepare import failed_of, prepare
from deadletters.batches.store import end_item, locked, set_status, stop
from deadletters.models import DeadLetter, ReplayBatch, ReplayItem
from deadletters.ports import Recovery, recovery
from deadletters.states import BatchStatus, ItemStatus, LetterAction, LetterStatus
from deadletters.types import SYSTEM

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0  # between looks while nothing is due
ITEMS_A_LOOK = 200
_CATCH_UP = timedelta(seconds=2)  # most that a late look makes up for

# Batches that need a message: those that run, and those that ended while jobs ran.
_LIVE = """
SELECT b.id FROM replay_batches b
 WHERE NOT (b.status IN ('draft', 'awaiting', 'finished'))
   AND (b.status = 'running'
        OR EXISTS (SELECT FROM replay_items i WHERE i.batch_id = b.id AND i.status = 'replaying'))"""


class _Lost(Exception):
    """Another worker holds the lease."""


def run_message(outbox_id: int, batch_id: int, token: str) -> None:
    """Take one look at a batch. The django-q2 task: never raises, refuses a lost lease."""
    lease = UUID(token)
    try:
        _hold(outbox_id, lease)
        seconds = look(batch_id, lambda: _hold(outbox_id, lease))
        _end(outbox_id, batch_id, lease, seconds)
    except _Lost:
        log.info("replay_batch_look_refused", batch=batch_id)
    except Exception:
        # The lease expires and the next look continues from the rows.
        log.exception("replay_batch_look_failed", batch=batch_id)


def ensure() -> None:
    """Publish the message of every batch that needs one; resolve letters proven late.

    Run by maintenance.
    """
    for row in prepared.rows(_LIVE):
        outbox.publish(batches.AGGREGATE, row["id"], batches.MESSAGE, batches.QUEUE)
    resolve_late()


def _hold(outbox_id: int, token: UUID) -> None:
    if not outbox.hold(outbox_id, token):
        raise _Lost


def _end(outbox_id: int, batch_id: int, token: UUID, seconds: float) -> None:
    """Schedule the next look, or end the message if none is needed."""
    with transaction.atomic():
        batch = locked(batch_id)  # a resume at this moment publishes afterwards
        at_work = batch.items.filter(status=ItemStatus.REPLAYING)
        if batch.status == BatchStatus.RUNNING or at_work.exists():
            outbox.put_back(outbox_id, token, seconds=seconds)
        else:
            outbox.done(outbox_id, token)


def look(batch_id: int, renew: Callable[[], object] = bool) -> float:
    """Do what is due; return the seconds until the next look. `renew` holds the lease or raises."""
    port = recovery()
    settle(batch_id, renew)
    batch = ReplayBatch.objects.get(pk=batch_id)
    if batch.status != BatchStatus.RUNNING:
        return LOOK_SECONDS
    if reason := _circuit_open(batch, port) or prepare(batch, port, renew):
        with transaction.atomic():
            stop(locked(batch_id), reason)
    for _ in range(ITEMS_A_LOOK):
        renew()
        seconds = _replay_next(batch_id, port)
        if seconds > 0:
            return min(seconds, LOOK_SECONDS)
    return 0.0


def _circuit_open(batch: ReplayBatch, port: Recovery) -> str:
    waiting = batch.items.filter(status__in=(ItemStatus.READY, ItemStatus.REPLAYING)).values("letter_id")
    letters = DeadLetter.objects.filter(pk__in=waiting)
    checks = port.circuits(failed_of(letters), restart=batch.is_restart)
    return next((check.message for check in checks if not check.ok), "")


def _replay_next(batch_id: int, port: Recovery) -> float:
    """Replay the next item if it is due; return the seconds to wait, or 0."""
    with transaction.atomic():
        batch = locked(batch_id)  # a pause or cancel waits for this item only
        if batch.status != BatchStatus.RUNNING:
            return LOOK_SECONDS
        now = timezone.now()
        due = batch.next_item_at or now
        if due > now:
            return (due - now).total_seconds()
        at_work = batch.items.filter(status=ItemStatus.REPLAYING)
        if at_work.count() >= batch.max_in_flight:
            return LOOK_SECONDS
        # One job of a lane runs at a time.
        ready = batch.items.filter(status=ItemStatus.READY).exclude(lane__in=at_work.values("lane"))
        item = ready.order_by("-is_canary", "id").first()
        if item is None:
            _finish_if_done(batch)
            return LOOK_SECONDS
        _replay(batch, item, port)
        step = timedelta(seconds=60 / batch.rate_per_minute)
        ReplayBatch.objects.filter(pk=batch_id).update(next_item_at=max(due, now - _CATCH_UP) + step)
    return 0.0


def _replay(batch: ReplayBatch, item: ReplayItem, port: Recovery) -> None:
    actor = actor_of(batch)
    # The letter and the item move together, or neither.
    result = workflow.replay_from(
        LetterStatus.REPLAY_PENDING, item.letter_id, actor, batch.reason, restart=batch.is_restart, port=port
    )
    if result.ok:
        updated = ReplayItem.objects.filter(pk=item.pk, status=ItemStatus.READY).update(
            status=ItemStatus.REPLAYING, started_at=Now(), detail=""
        )
        if updated != 1:
            raise RuntimeError(f"a guarded update of a replay item touched {updated} rows")
        return
    if reason := _circuit_open(batch, port):  # it opened during this look: the item waits with the others
        stop(batch, reason)
        return
    letter = DeadLetter.objects.filter(pk=item.letter_id).first()
    if letter is not None and letter.status == LetterStatus.REPLAY_PENDING:
        transitions.move(letter, LetterStatus.VALIDATED, LetterAction.UNQUEUED, SYSTEM, result.message)
    validated_at = letter.validated_at if letter else None
    if validated_at and timezone.now() - validated_at > workflow.VALID_FOR:
        ReplayItem.objects.filter(pk=item.pk).update(status=ItemStatus.PENDING)  # after a long pause
        return
    end_item(item.pk, ItemStatus.READY, ItemStatus.SKIPPED, result.message)


def _finish_if_done(batch: ReplayBatch) -> None:
    left = Q(status__in=(ItemStatus.PENDING, ItemStatus.READY, ItemStatus.REPLAYING))
    if not batch.items.filter(left).exists():
        set_status(batch, BatchStatus.FINISHED, SYSTEM, "", finished_at=timezone.now())
