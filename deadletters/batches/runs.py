"""A worker works through a replay batch: one outbox message a batch, one look a message.

Each look settles what has ended, walks a few letters through the steps, and replays what is due
at the batch's rate. Everything it knows is in rows: a look may die anywhere, a pause or a cancel
may come between any two items, and two looks at once replay nothing twice, because an item and
its letter move together, each from the one state that it must be in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from criticizer import outbox, sql
from criticizer.redaction import clean
from deadletters import alerts, batches, moves, workflow
from deadletters.models import DeadLetter, DeadLetterEvent, ReplayBatch, ReplayItem
from deadletters.results import SYSTEM, Failed, Recovery, recovery
from deadletters.states import BEFORE_REPLAY, BatchStatus, ItemStatus, LetterAction, LetterStatus

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0  # between looks while nothing is due
PREPARED_SECONDS = 30.0  # of the batch's rate are walked through the steps ahead
MOST_PREPARED = 300
ITEMS_A_LOOK = 200
SETTLED_AT_ONCE = 50  # outcomes a commit
_CATCH_UP = timedelta(seconds=2)  # a late look may make up for so much

_I, _L, _A = ItemStatus, LetterStatus, LetterAction
_ENDS = (_A.SUCCEEDED, _A.FAILED_AGAIN, _A.DISCARDED)

_HOLD = """
UPDATE outbox_messages SET started_at = coalesce(started_at, now()),
       available_at = now() + make_interval(secs => %(lease)s)
 WHERE id = %(id)s AND lease_token = %(token)s RETURNING id"""
_AGAIN = """
UPDATE outbox_messages
   SET available_at = now() + make_interval(secs => %(seconds)s), lease_token = NULL, started_at = NULL
 WHERE id = %(id)s AND lease_token = %(token)s"""
_GONE = "DELETE FROM outbox_messages WHERE id = %(id)s AND lease_token = %(token)s"
# Batches that should have a message: those that run, and those that ended with jobs at work.
_LIVE = """
SELECT b.id FROM replay_batches b
 WHERE NOT (b.status IN ('draft', 'awaiting', 'finished'))
   AND (b.status = 'running'
        OR EXISTS (SELECT FROM replay_items i WHERE i.batch_id = b.id AND i.status = 'replaying'))"""


class _Lost(Exception):
    """The lease is somebody else's."""


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
        # The lease runs out and the next look goes on from what is recorded.
        log.exception("replay_batch_look_failed", batch=batch_id)


def ensure() -> None:
    """Make the message of every batch that should have one. Run by the maintenance."""
    for row in sql.rows(_LIVE):
        outbox.publish(batches.AGGREGATE, row["id"], batches.MESSAGE, batches.QUEUE)


def _hold(outbox_id: int, token: UUID) -> None:
    lease = outbox.scaled(outbox.LEASE_SECONDS)
    if not sql.row(_HOLD, {"id": outbox_id, "token": token, "lease": lease}):
        raise _Lost


def _end(outbox_id: int, batch_id: int, token: UUID, seconds: float) -> None:
    """Let the next look be due, or none when there is nothing left to look at."""
    with transaction.atomic():
        batch = batches.locked(batch_id)  # a resume that comes now publishes after us
        is_live = batch.status == BatchStatus.RUNNING or batch.items.filter(status=_I.REPLAYING).exists()
        sql.rows(_AGAIN if is_live else _GONE, {"id": outbox_id, "token": token, "seconds": seconds})


# -- one look ----------------------------------------------------------------------------------


def look(batch_id: int, renew: Callable[[], object] = bool) -> float:
    """Do what is due now; return the seconds until there may be more. `renew` holds the lease or raises."""
    port = recovery()
    _settle(batch_id, renew)
    batch = ReplayBatch.objects.get(pk=batch_id)
    if batch.status != BatchStatus.RUNNING:
        return LOOK_SECONDS
    if reason := _circuit_open(batch, port) or _prepare(batch, port, renew):
        with transaction.atomic():
            _stop(batches.locked(batch_id), reason)
    for _ in range(ITEMS_A_LOOK):
        renew()
        seconds = _replay_next(batch_id, port)
        if seconds > 0:
            return min(seconds, LOOK_SECONDS)
    return 0.0


# -- what has ended ----------------------------------------------------------------------------


def _settle(batch_id: int, renew: Callable[[], object]) -> None:
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
            batch = batches.locked(batch_id)
            reasons = [
                _why_stop(item, ends[item.pk], detail)
                for item, outcome, detail in part
                if _write(item, outcome, detail) and outcome == _I.FAILED
            ]
            if reason := next(filter(None, reasons), ""):
                _stop(batch, reason)


def _why_stop(item: ReplayItem, end: DeadLetterEvent, detail: str) -> str:
    """Return why the batch must stop when this item failed again, or ""."""
    if item.is_canary:
        return f"letter {item.letter_id} of those that went first failed again: {detail}"
    if end.context.get("group") == item.group_id:
        return f"the same failure came back: letter {item.letter_id}, {detail}"
    return ""


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
    return _I.FAILED, checked.message


def _write(item: ReplayItem, outcome: ItemStatus, detail: str) -> bool:
    """Say whether this is news: another look may have been here, with the same outcome."""
    updated = ReplayItem.objects.filter(pk=item.pk, status=_I.REPLAYING).update(
        status=outcome, detail=clean(detail, 1000), finished_at=timezone.now()
    )
    return updated == 1


# -- what stops it -----------------------------------------------------------------------------


def _stop(batch: ReplayBatch, reason: str) -> None:
    """Stop a locked batch that runs or is paused, if anything is left that could be held back."""
    if batch.status not in {BatchStatus.RUNNING, BatchStatus.PAUSED}:
        return
    if not batch.items.filter(status__in=(_I.PENDING, _I.READY)).exists():
        return
    batches.set_status(batch, BatchStatus.STOPPED, SYSTEM, reason)
    batches.let_go(batch, SYSTEM, f"batch {batch.pk} stopped")
    alerts.tell(
        "batch_stopped",
        key=f"batch-stopped:{batch.pk}:{batch.row_version}",
        title=f"Replay batch {batch.pk} stopped",
        text=reason,
        path=f"/admin/deadletters/replaybatch/{batch.pk}/change/",
    )


def _circuit_open(batch: ReplayBatch, port: Recovery) -> str:
    waiting = batch.items.filter(status__in=(_I.READY, _I.REPLAYING)).values("letter_id")
    letters = DeadLetter.objects.filter(pk__in=waiting).values_list("job_id", "stage")
    checks = port.circuits([Failed(job_id, stage) for job_id, stage in letters])
    return next((check.message for check in checks if not check.ok), "")


# -- the steps ---------------------------------------------------------------------------------


def _prepare(batch: ReplayBatch, port: Recovery, renew: Callable[[], object]) -> str:
    """Walk the next letters through the steps, a little ahead of the rate; return why to stop, or ""."""
    ahead = min(MOST_PREPARED, max(5, int(batch.rate_per_minute * PREPARED_SECONDS / 60)))
    ready = batch.items.filter(status=_I.READY).count()
    if ready > ahead // 2:
        return ""
    pending: QuerySet[ReplayItem] = batch.items.filter(status=_I.PENDING)
    if batch.canary_size and (canaries := _canaries(batch)) is not None:
        pending = canaries
    items = list(pending.order_by("id")[: ahead - ready])
    if not items:
        return ""
    renew()
    if reason := _does_not_answer(batch, items, port):
        return reason
    skipped = _walk(batch, [item.letter_id for item in items], port)
    renew()
    _queue(batch.pk, items, skipped)
    return ""


def _canaries(batch: ReplayBatch) -> QuerySet[ReplayItem] | None:
    """Return the items that must go before all others, None when these have shown that it works."""
    canaries = batch.items.filter(is_canary=True)
    if canaries.filter(status__in=(_I.READY, _I.REPLAYING)).exists():
        return canaries.filter(status=_I.PENDING)
    if canaries.filter(status=_I.PENDING).exists():
        return canaries.filter(status=_I.PENDING)
    if canaries.filter(status=_I.SUCCEEDED).exists() or not batch.items.filter(status=_I.PENDING).exists():
        return None
    with transaction.atomic():
        # None of them succeeded, and one that failed stopped the batch, which somebody resumed.
        batches.choose_canaries(batches.locked(batch.pk))
    return canaries.filter(status=_I.PENDING)


def _does_not_answer(batch: ReplayBatch, items: Sequence[ReplayItem], port: Recovery) -> str:
    """Ask what the stages of these letters need, once; a silent dependency fails the batch, not items."""
    letters = DeadLetter.objects.filter(pk__in=[item.letter_id for item in items], status__in=BEFORE_REPLAY)
    failed = [Failed(job_id, stage) for job_id, stage in letters.values_list("job_id", "stage")]
    checks = port.circuits(failed)
    for answers in port.answers(failed).values():
        checks += answers
    silent = [check.message for check in checks if not check.ok]
    return "" if not silent or batch.override_reason else silent[0]


def _walk(batch: ReplayBatch, letter_ids: list[int], port: Recovery) -> dict[int, str]:
    """Take letters through triage, remediation and validation; return why some are not validated."""
    actor = f"{batch.requested_by} (batch {batch.pk})"

    def those_in(*statuses: LetterStatus) -> list[int]:
        found = DeadLetter.objects.filter(pk__in=letter_ids, status__in=statuses)
        return list(found.values_list("pk", flat=True))

    workflow.triage_many(those_in(_L.NEW), actor=actor, category=batch.category, note=batch.reason)
    workflow.remediate_many(
        those_in(_L.TRIAGED),
        actor=actor,
        evidence_link=batch.evidence_link,
        evidence_note=batch.evidence_note,
    )
    tally = workflow.validate_many(
        letter_ids,
        actor=actor,
        override_reason=batch.override_reason,
        restart=batch.is_restart,
        port=port,
    )
    return tally.skipped_ids


def _queue(batch_id: int, items: Sequence[ReplayItem], skipped: dict[int, str]) -> None:
    """Let the validated letters wait for their turn; write down why the others do not."""
    with transaction.atomic():
        batch = batches.locked(batch_id)
        if batch.status != BatchStatus.RUNNING:
            return
        by_letter = {item.letter_id: item for item in items}
        tally = moves.move_many(
            [letter for letter in by_letter if letter not in skipped],
            (_L.VALIDATED,),
            _L.REPLAY_PENDING,
            _A.QUEUED,
            SYSTEM,
            f"batch {batch_id}",
            verb="queued",
        )
        ready = [by_letter[letter].pk for letter in tally.done_ids]
        ReplayItem.objects.filter(pk__in=ready, status=_I.PENDING).update(status=_I.READY, detail="")
        for letter, reason in {**skipped, **tally.skipped_ids}.items():
            ReplayItem.objects.filter(pk=by_letter[letter].pk, status=_I.PENDING).update(
                status=_I.SKIPPED, detail=clean(reason, 1000), finished_at=timezone.now()
            )


# -- the replay --------------------------------------------------------------------------------


def _replay_next(batch_id: int, port: Recovery) -> float:
    """Replay the next item if it is its turn; return the seconds to wait, 0 to go on at once."""
    with transaction.atomic():
        batch = batches.locked(batch_id)  # a pause or cancel waits for this item, and no item after it
        if batch.status != BatchStatus.RUNNING:
            return LOOK_SECONDS
        now = timezone.now()
        due = batch.next_item_at or now
        if due > now:
            return (due - now).total_seconds()
        at_work = batch.items.filter(status=_I.REPLAYING)
        if at_work.count() >= batch.max_in_flight:
            return LOOK_SECONDS
        # One job of a changelist is at work at a time.
        ready = batch.items.filter(status=_I.READY).exclude(lane__in=at_work.values("lane"))
        item = ready.order_by("-is_canary", "id").first()
        if item is None:
            _finish_if_done(batch)
            return LOOK_SECONDS
        _replay(batch, item, port)
        step = timedelta(seconds=60 / batch.rate_per_minute)
        ReplayBatch.objects.filter(pk=batch_id).update(next_item_at=max(due, now - _CATCH_UP) + step)
    return 0.0


def _replay(batch: ReplayBatch, item: ReplayItem, port: Recovery) -> None:
    actor = f"{batch.requested_by} (batch {batch.pk})"
    # The letter and the item move together, or neither.
    result = workflow.replay_from(
        _L.REPLAY_PENDING, item.letter_id, actor, batch.reason, restart=batch.is_restart, port=port
    )
    if result.ok:
        updated = ReplayItem.objects.filter(pk=item.pk, status=_I.READY).update(
            status=_I.REPLAYING, started_at=Now(), detail=""
        )
        if updated != 1:
            raise RuntimeError(f"a guarded update of a replay item touched {updated} rows")
        return
    letter = DeadLetter.objects.filter(pk=item.letter_id).first()
    if letter is not None and letter.status == _L.REPLAY_PENDING:
        moves.move(letter, _L.VALIDATED, _A.UNQUEUED, SYSTEM, result.message)
    if (
        letter is not None
        and letter.validated_at
        and timezone.now() - letter.validated_at > workflow.VALID_FOR
    ):
        ReplayItem.objects.filter(pk=item.pk).update(status=_I.PENDING)  # a long pause: walked again
        return
    ReplayItem.objects.filter(pk=item.pk, status=_I.READY).update(
        status=_I.SKIPPED, detail=clean(result.message, 1000), finished_at=timezone.now()
    )


def _finish_if_done(batch: ReplayBatch) -> None:
    left = Q(status__in=(_I.PENDING, _I.READY, _I.REPLAYING))
    if not batch.items.filter(left).exists():
        batches.set_status(batch, BatchStatus.FINISHED, SYSTEM, "", finished_at=timezone.now())
