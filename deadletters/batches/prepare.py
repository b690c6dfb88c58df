"""Preparation of a batch's next letters, ahead of its rate: triage, remediate, validate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from django.db import transaction
from django.db.models import QuerySet

from deadletters import workflow
from deadletters.batches.closing import actor_of
from deadletters.batches.drafts import choose_canaries
from deadletters.batches.store import OVERRULED, end_item, locked, validated_now
from deadletters.models import DeadLetter, DeadLetterEvent, ReplayBatch, ReplayItem
from deadletters.ports import Recovery
from deadletters.states import BEFORE_REPLAY, BatchStatus, ItemStatus, LetterAction, LetterStatus
from deadletters.transitions import Step
from deadletters.types import SYSTEM, Failed

PREPARED_SECONDS = 30.0  # of the batch's rate are prepared ahead
MOST_PREPARED = 300


def prepare(batch: ReplayBatch, port: Recovery, renew: Callable[[], object]) -> str:
    """Prepare the next letters; return why the batch must stop, or an empty string."""
    ahead = min(MOST_PREPARED, max(5, int(batch.rate_per_minute * PREPARED_SECONDS / 60)))
    ready = batch.items.filter(status=ItemStatus.READY).count()
    if ready > ahead // 2:
        return ""
    pending: QuerySet[ReplayItem] = batch.items.filter(status=ItemStatus.PENDING)
    if batch.canary_size and (canaries := _canaries(batch)) is not None:
        pending = canaries
    items = list(pending.order_by("id")[: ahead - ready])
    if not items:
        return ""
    renew()
    kept = _validated_before(batch, [item.letter_id for item in items])
    if reason := _why_unavailable(batch, items, kept, port):
        return reason
    skipped = _advance(batch, [item.letter_id for item in items if item.letter_id not in kept], port)
    renew()
    _queue(batch.pk, items, skipped)
    return ""


def _canaries(batch: ReplayBatch) -> QuerySet[ReplayItem] | None:
    """Return the canaries that must go before all other items, or None once one has succeeded."""
    canaries = batch.items.filter(is_canary=True)
    pending = canaries.filter(status=ItemStatus.PENDING)
    if pending.exists() or canaries.filter(status__in=(ItemStatus.READY, ItemStatus.REPLAYING)).exists():
        return pending
    if canaries.filter(status=ItemStatus.SUCCEEDED).exists():
        return None
    if not batch.items.filter(status=ItemStatus.PENDING).exists():
        return None
    with transaction.atomic():
        # All canaries failed, and an operator resumed the batch: choose new ones.
        choose_canaries(locked(batch.pk))
    return pending


def _validated_before(batch: ReplayBatch, letter_ids: Sequence[int]) -> set[int]:
    """Return the letters whose own validation is fresh and was made for this batch's start.

    A validation that an operator overruled after the approval does not count: its approver did not see
    it. A batch with an override validates every letter itself.
    """
    if batch.override_reason:
        return set()
    unseen = {"validated_at__gt": batch.approved_at} if batch.approved_at else {}
    fresh = validated_now().filter(pk__in=letter_ids).exclude(OVERRULED, **unseen)
    last = DeadLetterEvent.objects.filter(
        letter_id__in=fresh.values("pk"), action__in=(LetterAction.VALIDATED, LetterAction.OVERRIDDEN)
    ).order_by("letter_id", "-id")
    made_for = last.distinct("letter_id").values_list("letter_id", "context__restart")
    # None: an operator's validation, made for either start; the replay runs the database checks again.
    return {letter for letter, restart in made_for if restart in (None, batch.is_restart)}


def _why_unavailable(
    batch: ReplayBatch, items: Sequence[ReplayItem], kept: Collection[int], port: Recovery
) -> str:
    """Return why a dependency of these letters is unavailable, or "".

    An unavailable dependency stops the batch; it fails no items. Letters that keep an overruled validation
    are not asked about. An open circuit is never overruled.
    """
    wanted = [item.letter_id for item in items]
    letters = DeadLetter.objects.filter(pk__in=wanted, status__in=BEFORE_REPLAY)
    asked = letters.none() if batch.override_reason else letters.exclude(OVERRULED, pk__in=kept)
    checks = port.circuits(failed_of(letters), restart=batch.is_restart)
    for answers in port.answers(failed_of(asked), restart=batch.is_restart).values():
        checks += answers
    return next((check.message for check in checks if not check.ok), "")


def failed_of(letters: QuerySet[DeadLetter]) -> list[Failed]:
    """Return the failed stages of letters, for the port."""
    return [Failed(job_id, stage) for job_id, stage in letters.values_list("job_id", "stage")]


def _advance(batch: ReplayBatch, letter_ids: list[int], port: Recovery) -> dict[int, str]:
    """Take letters through triage to validation; return, by letter, why it is not validated.

    A pause or a cancel may come between two steps; steps that an operator took since stand.
    """
    actor = actor_of(batch)
    with transaction.atomic():
        letters = _held(batch, letter_ids, LetterStatus.NEW)
        workflow.triage_many(letters, actor=actor, category=batch.category, note=batch.reason)
    with transaction.atomic():
        letters = _held(batch, letter_ids, LetterStatus.TRIAGED)
        workflow.remediate_many(
            letters, actor=actor, evidence_link=batch.evidence_link, evidence_note=batch.evidence_note
        )
    if not ReplayBatch.objects.filter(pk=batch.pk, status=BatchStatus.RUNNING).exists():
        return {}
    tally = workflow.validate_many(
        letter_ids, actor=actor, override_reason=batch.override_reason, restart=batch.is_restart, port=port
    )
    return tally.skipped_ids


def _held(batch: ReplayBatch, letter_ids: Collection[int], status: LetterStatus) -> list[int]:
    """Lock a batch, then its letters in a state; return none if the batch no longer runs."""
    if locked(batch.pk).status != BatchStatus.RUNNING:
        return []
    letters = DeadLetter.objects.select_for_update().filter(pk__in=letter_ids, status=status)
    return list(letters.order_by("pk").values_list("pk", flat=True))


def _queue(batch_id: int, items: Sequence[ReplayItem], skipped: dict[int, str]) -> None:
    """Queue the validated letters; record why the others are skipped."""
    with transaction.atomic():
        batch = locked(batch_id)
        if batch.status != BatchStatus.RUNNING:
            return
        # An item that another look has queued or skipped does not move its letter again.
        pending = batch.items.filter(pk__in=[item.pk for item in items], status=ItemStatus.PENDING)
        by_letter = {item.letter_id: item for item in pending}
        queue = Step(LetterStatus.REPLAY_PENDING, LetterAction.QUEUED, SYSTEM, f"batch {batch_id}")
        tally = queue.take_many(by_letter.keys() - skipped.keys(), (LetterStatus.VALIDATED,))
        ready = [by_letter[letter].pk for letter in tally.done_ids]
        ReplayItem.objects.filter(pk__in=ready).update(status=ItemStatus.READY, detail="")
        why = {**skipped, **tally.skipped_ids}
        for letter in by_letter.keys() & why.keys():
            end_item(by_letter[letter].pk, ItemStatus.PENDING, ItemStatus.SKIPPED, why[letter])
