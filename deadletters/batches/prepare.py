"""The next letters of a batch go through triage, remediation and validation, a little ahead of its rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from criticizer.redaction import clean
from deadletters import transitions, workflow
from deadletters.batches.drafts import choose_canaries
from deadletters.batches.store import OVERRULED, locked, validated_now
from deadletters.models import DeadLetter, DeadLetterEvent, ReplayBatch, ReplayItem
from deadletters.ports import Recovery
from deadletters.states import BEFORE_REPLAY, BatchStatus, ItemStatus, LetterAction, LetterStatus
from deadletters.types import SYSTEM, Failed

PREPARED_SECONDS = 30.0  # of the batch's rate are walked through the steps ahead
MOST_PREPARED = 300

_I, _L, _A = ItemStatus, LetterStatus, LetterAction


def prepare(batch: ReplayBatch, port: Recovery, renew: Callable[[], object]) -> str:
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
    kept = _validated_before(batch, [item.letter_id for item in items])
    if reason := _does_not_answer(batch, items, kept, port):
        return reason
    skipped = _walk(batch, [item.letter_id for item in items if item.letter_id not in kept], port)
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
        choose_canaries(locked(batch.pk))
    return canaries.filter(status=_I.PENDING)


def _validated_before(batch: ReplayBatch, letter_ids: Sequence[int]) -> set[int]:
    """Return the letters whose own validation holds for this batch: fresh, and made for its start.

    What an operator overruled by hand stays overruled as far as who approved the batch could see it;
    a batch that overrules has its own word for all.
    """
    if batch.override_reason:
        return set()
    unseen = {"validated_at__gt": batch.approved_at} if batch.approved_at else {}
    fresh = validated_now().filter(pk__in=letter_ids).exclude(OVERRULED, **unseen)
    last = DeadLetterEvent.objects.filter(
        letter_id__in=fresh.values("pk"), action__in=(_A.VALIDATED, _A.OVERRIDDEN)
    ).order_by("letter_id", "-id")
    made_for = last.distinct("letter_id").values_list("letter_id", "context__restart")
    # None: an operator's, who chooses the start at the replay. What the rows say is asked again then.
    return {letter for letter, restart in made_for if restart in (None, batch.is_restart)}


def _does_not_answer(
    batch: ReplayBatch, items: Sequence[ReplayItem], kept: Collection[int], port: Recovery
) -> str:
    """Ask what the stages of these letters need, once; a silent dependency fails the batch, not items.

    Not of letters that keep a validation which overruled the answer. An open circuit is never overruled.
    """
    wanted = [item.letter_id for item in items]
    letters = DeadLetter.objects.filter(pk__in=wanted, status__in=BEFORE_REPLAY)
    asked = letters.none() if batch.override_reason else letters.exclude(OVERRULED, pk__in=kept)
    checks = port.circuits(_failed(letters), restart=batch.is_restart)
    for answers in port.answers(_failed(asked), restart=batch.is_restart).values():
        checks += answers
    return next((check.message for check in checks if not check.ok), "")


def _failed(letters: QuerySet[DeadLetter]) -> list[Failed]:
    return [Failed(job_id, stage) for job_id, stage in letters.values_list("job_id", "stage")]


def _walk(batch: ReplayBatch, letter_ids: list[int], port: Recovery) -> dict[int, str]:
    """Take letters through triage, remediation and validation; return why some are not validated.

    A pause or a cancel comes between two steps, and what an operator has done meanwhile stands.
    """
    actor = f"{batch.requested_by} (batch {batch.pk})"
    with transaction.atomic():
        letters = _held(batch, letter_ids, _L.NEW)
        workflow.triage_many(letters, actor=actor, category=batch.category, note=batch.reason)
    with transaction.atomic():
        letters = _held(batch, letter_ids, _L.TRIAGED)
        workflow.remediate_many(
            letters, actor=actor, evidence_link=batch.evidence_link, evidence_note=batch.evidence_note
        )
    if not ReplayBatch.objects.filter(pk=batch.pk, status=BatchStatus.RUNNING).exists():
        return {}
    tally = workflow.validate_many(
        letter_ids,
        actor=actor,
        override_reason=batch.override_reason,
        restart=batch.is_restart,
        port=port,
    )
    return tally.skipped_ids


def _held(batch: ReplayBatch, letter_ids: Collection[int], status: LetterStatus) -> list[int]:
    """Lock a batch, then its letters that are in a state now; none when the batch does not run any more."""
    if locked(batch.pk).status != BatchStatus.RUNNING:
        return []
    letters = DeadLetter.objects.select_for_update().filter(pk__in=letter_ids, status=status)
    return list(letters.order_by("pk").values_list("pk", flat=True))


def _queue(batch_id: int, items: Sequence[ReplayItem], skipped: dict[int, str]) -> None:
    """Let the validated letters wait for their turn; write down why the others do not."""
    with transaction.atomic():
        batch = locked(batch_id)
        if batch.status != BatchStatus.RUNNING:
            return
        # An item that another look has dealt with meanwhile takes its letter nowhere.
        pending = batch.items.filter(pk__in=[item.pk for item in items], status=_I.PENDING)
        by_letter = {item.letter_id: item for item in pending}
        tally = transitions.move_many(
            [letter for letter in by_letter if letter not in skipped],
            (_L.VALIDATED,),
            _L.REPLAY_PENDING,
            _A.QUEUED,
            SYSTEM,
            f"batch {batch_id}",
            verb="queued",
        )
        ready = [by_letter[letter].pk for letter in tally.done_ids]
        ReplayItem.objects.filter(pk__in=ready).update(status=_I.READY, detail="")
        why = {**skipped, **tally.skipped_ids}
        for letter in by_letter.keys() & why.keys():
            ReplayItem.objects.filter(pk=by_letter[letter].pk).update(
                status=_I.SKIPPED, detail=clean(why[letter], 1000), finished_at=timezone.now()
            )
