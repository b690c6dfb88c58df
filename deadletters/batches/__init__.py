"""Replay batches, as operators see them: a frozen selection, a dry run, a second pair of eyes.

    draft ─► (dry_run) ─► submit ─► [awaiting ─► approve] ─► running ─► finished
                                         running ◄─► paused ─► stopped, running ◄─► stopped
                                         any of them ─► cancelled

    draft(*, filter, ids, actor, reason, **settings) -> ReplayBatch
    configure(batch_id, *, actor, **settings)        -> Result     drafts only; `set_pace` later
    dry_run(batch_id)                                -> dict        {"verdicts": {verdict: n}, …}
    submit, approve, pause, resume, cancel(batch_id, *, actor, reason="") -> Result
    progress(batch_id) -> Progress ; csv_rows(batch_id) -> rows

The worker's half is `runs`. Only these two write states of batches and items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from criticizer import outbox
from criticizer.redaction import clean
from deadletters import moves
from deadletters.models import MIN_WORDS, DeadLetter, ReplayBatch, ReplayBatchEvent, ReplayItem
from deadletters.results import Check, Failed, Result, recovery
from deadletters.states import (
    BEFORE_REPLAY,
    OPEN_LETTER,
    BatchStatus,
    Category,
    ItemStatus,
    LetterAction,
    LetterStatus,
)

log = structlog.get_logger(__name__)

AGGREGATE = "replay_batch"
MESSAGE = "replay_batch"
QUEUE = "stages"
MAX_ITEMS = 50_000
MAX_RATE_PER_MINUTE = 6_000
_AT_ONCE = 1_000
_SETTINGS = (
    "category",
    "evidence_link",
    "evidence_note",
    "override_reason",
    "is_restart",
    "canary_size",
    "rate_per_minute",
    "max_in_flight",
)
_B = BatchStatus


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is. `newer`: letters that joined its groups since it was drafted."""

    by_status: Mapping[str, int]
    total: int
    done: int
    newer: int


# -- making one --------------------------------------------------------------------------------


def draft(
    *,
    filter: Mapping[str, Any],  # noqa: A002
    ids: Iterable[int],
    actor: str,
    reason: str,
    **given: Any,
) -> ReplayBatch:
    """Freeze a selection of letters. Nothing runs; ids that are no letters are left out.

    `filter` says for people how the selection was made. `given` are settings as for
    `configure`. Raises ValueError: no reason, no letter, too many, a setting out of range.
    """
    if len(reason.strip()) < MIN_WORDS:
        raise ValueError("Say why: a ticket, an incident or a sentence.")
    chosen = _checked(given)
    wanted = sorted(set(ids))
    if len(wanted) > MAX_ITEMS:
        raise ValueError(f"A batch holds at most {MAX_ITEMS} letters.")
    with transaction.atomic():
        batch = ReplayBatch.objects.create(
            filter=dict(filter), reason=clean(reason.strip(), 4000), requested_by=actor[:255], **chosen
        )
        for start in range(0, len(wanted), _AT_ONCE):
            _freeze(batch, wanted[start : start + _AT_ONCE])
        count = batch.items.count()
        if not count:
            raise ValueError("There is no letter to replay.")
        ReplayBatch.objects.filter(pk=batch.pk).update(item_count=count)
        choose_canaries(batch)
        _event(batch, "drafted", actor, f"{count} letters: {reason}")
    batch.refresh_from_db()
    return batch


def _freeze(batch: ReplayBatch, letter_ids: list[int]) -> None:
    letters = DeadLetter.objects.filter(pk__in=letter_ids).order_by("pk").values("pk", "job_id", "group_id")
    lanes = recovery().lanes({letter["job_id"] for letter in letters})
    ReplayItem.objects.bulk_create(
        ReplayItem(
            batch=batch,
            letter_id=letter["pk"],
            job_id=letter["job_id"],
            group_id=letter["group_id"],
            lane=lanes.get(letter["job_id"], str(letter["job_id"]))[:128],
        )
        for letter in letters
    )


def choose_canaries(batch: ReplayBatch) -> None:
    """Mark the next few items that go first: of as many groups as there are."""
    if not batch.canary_size:
        return
    pending = batch.items.filter(status=ItemStatus.PENDING, is_canary=False)
    first_of_each = pending.order_by("group_id", "id").distinct("group_id").values_list("pk", flat=True)
    chosen = list(first_of_each[: batch.canary_size])
    more = pending.exclude(pk__in=chosen).order_by("id").values_list("pk", flat=True)
    chosen += more[: batch.canary_size - len(chosen)]
    batch.items.filter(pk__in=chosen).update(is_canary=True)


def configure(batch_id: int, *, actor: str, row_version: int | None = None, **given: Any) -> Result:
    """Change the settings of a draft.

    `category` (of those not triaged yet; "" lets the class suggest it), `evidence_link`,
    `evidence_note` (of those not remediated yet), `override_reason`, `is_restart`,
    `canary_size` (0 to 100), `rate_per_minute` (1 to 6000), `max_in_flight` (1 to 500).
    Raises ValueError when one is out of range.
    """
    changes = _checked(given)
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.DRAFT}, row_version):
            return refused
        ReplayBatch.objects.filter(pk=batch_id).update(**changes)
        if "canary_size" in changes:
            batch.items.update(is_canary=False)
            choose_canaries(locked(batch_id))
        _event(batch, "configured", actor, ", ".join(sorted(changes)))
    return Result(True, "changed")


def set_pace(
    batch_id: int, *, actor: str, rate_per_minute: int, max_in_flight: int | None = None, reason: str = ""
) -> Result:
    """Change how fast a batch goes, also while it runs. Raises ValueError when out of range."""
    changes = _checked(
        {"rate_per_minute": rate_per_minute, **({"max_in_flight": max_in_flight} if max_in_flight else {})}
    )
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.DRAFT, _B.AWAITING, _B.RUNNING, _B.PAUSED, _B.STOPPED}):
            return refused
        ReplayBatch.objects.filter(pk=batch_id).update(**changes, next_item_at=None)
        at_once = changes.get("max_in_flight", batch.max_in_flight)
        pace = f"{rate_per_minute} a minute, at most {at_once} at once"
        _event(batch, "pace", actor, f"{pace}: {reason.strip()}" if reason.strip() else pace)
    return Result(True, f"{pace} from now on")


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := set(given) - set(_SETTINGS):
        raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
    changes = dict(given)
    for name, least, most in (
        ("canary_size", 0, 100),
        ("rate_per_minute", 1, MAX_RATE_PER_MINUTE),
        ("max_in_flight", 1, 500),
    ):
        if name in changes and not least <= int(changes[name]) <= most:
            raise ValueError(f"{name} lies between {least} and {most}")
    if changes.get("category") and changes["category"] not in Category.values:
        raise ValueError(f"category is one of {', '.join(Category.values)}")
    link = str(changes.get("evidence_link", "")).strip()
    if link and not link.startswith(("https://", "http://")):
        raise ValueError("a ticket is linked by an address that begins with https:// or http://")
    for name, limit in (("evidence_link", 500), ("evidence_note", 4000), ("override_reason", 4000)):
        if name in changes:
            changes[name] = clean(str(changes[name]).strip(), limit)
    return changes


# -- the dry run -------------------------------------------------------------------------------

_VERDICTS = {"job": "not_dead_lettered", "version": "newer_version", "artifact": "artifact_expired",
             "deliveries": "delivery_uncertain"}  # fmt: skip


def dry_run(batch_id: int) -> dict[str, Any]:
    """Say of each item what a replay would meet now, from the rows alone; nothing is replayed.

    Returns `{"verdicts": {verdict: count}, "checked_at": iso time}`, which is kept with the
    batch, as each item's `verdict` and `detail` are. Verdicts: eligible, needs_override,
    not_dead_lettered, newer_version, artifact_expired, delivery_uncertain, circuit_open,
    in_another_batch, at_work, closed, gone.
    """
    batch = ReplayBatch.objects.get(pk=batch_id)
    port = recovery()
    counts: dict[str, int] = {}
    items = batch.items.filter(status=ItemStatus.PENDING).order_by("id")
    last = 0
    while part := list(items.filter(pk__gt=last)[:_AT_ONCE]):
        last = part[-1].pk
        letters = DeadLetter.objects.in_bulk([item.letter_id for item in part])
        failed = [Failed(letter.job_id, letter.stage) for letter in letters.values()]
        said = port.survey(failed, restart=batch.is_restart)
        for item in part:
            letter = letters.get(item.letter_id)
            checks = said[letter.job_id] if letter else []
            item.verdict, item.detail = _verdict(batch, letter, checks)
            counts[item.verdict] = counts.get(item.verdict, 0) + 1
        ReplayItem.objects.bulk_update(part, ["verdict", "detail"])
    report = {"verdicts": counts, "checked_at": timezone.now().isoformat()}
    ReplayBatch.objects.filter(pk=batch_id).update(report=report)
    return report


def _verdict(batch: ReplayBatch, letter: DeadLetter | None, checks: list[Check]) -> tuple[str, str]:
    if letter is None:
        return "gone", "the letter does not exist any more"
    if letter.status not in OPEN_LETTER:
        return "closed", f"the letter is {letter.get_status_display().lower()}"
    if letter.status == LetterStatus.REPLAY_PENDING:
        return "in_another_batch", "another batch will replay it"
    if letter.status not in BEFORE_REPLAY:
        return "at_work", f"the letter is {letter.get_status_display().lower()}"
    failed = [check for check in checks if not check.ok]
    for check in failed:
        if check.is_hard:
            return _VERDICTS.get(check.name, "not_replayable"), check.message
    if failed and not batch.override_reason:
        is_circuit = failed[0].name.startswith("circuit")
        return "circuit_open" if is_circuit else "needs_override", failed[0].message
    return "eligible", ""


# -- decisions ---------------------------------------------------------------------------------


def needs_approval(batch: ReplayBatch) -> bool:
    """Say whether a second person must look: many letters, a full restart, or checks overruled."""
    many = batch.item_count > settings.REPLAY_APPROVAL_ABOVE
    return bool(many or batch.is_restart or batch.override_reason)


def submit(batch_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """Start a draft, or let it wait for approval where it needs one."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.DRAFT}, row_version):
            return refused
        if max(len(batch.evidence_link.strip()), len(batch.evidence_note.strip())) < MIN_WORDS:
            return Result(False, "give a link to a ticket, or say what was done about the failures")
        if needs_approval(batch):
            set_status(batch, _B.AWAITING, actor, reason, needs_approval=True)
            return Result(True, "submitted: somebody else has to approve it")
        _start(batch, actor, reason)
    return Result(True, "started")


def approve(batch_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """Start a batch that waits for approval. Who asked for it cannot approve it."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.AWAITING}, row_version):
            return refused
        if actor == batch.requested_by:
            return Result(False, "who asked for a batch cannot approve it")
        _start(batch, actor, reason, approved_by=actor[:255], approved_at=timezone.now())
    return Result(True, "approved and started")


def pause(batch_id: int, *, actor: str, reason: str = "") -> Result:
    """Replay nothing further until it is resumed; jobs at work go on."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.RUNNING}):
            return refused
        set_status(batch, _B.PAUSED, actor, reason)
    return Result(True, "paused")


def resume(batch_id: int, *, actor: str, reason: str = "") -> Result:
    """Go on with a batch that was paused or stopped."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.PAUSED, _B.STOPPED}):
            return refused
        _start(batch, actor, reason)
    return Result(True, "resumed")


def cancel(batch_id: int, *, actor: str, reason: str = "") -> Result:
    """End a batch: what was replayed stays replayed, the other letters are let go."""
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := _refusal(batch, {_B.DRAFT, _B.AWAITING, _B.RUNNING, _B.PAUSED, _B.STOPPED}):
            return refused
        set_status(batch, _B.CANCELLED, actor, reason)
        let_go(batch, actor, "the batch was cancelled")
        left = batch.items.filter(status=ItemStatus.PENDING)
        count = left.update(
            status=ItemStatus.CANCELLED, detail="the batch was cancelled", finished_at=timezone.now()
        )
    return Result(True, f"cancelled; {count} letters were not replayed")


def _start(batch: ReplayBatch, actor: str, reason: str, **changes: Any) -> None:
    started = {} if batch.started_at else {"started_at": timezone.now()}
    set_status(batch, _B.RUNNING, actor, reason, next_item_at=None, **started, **changes)
    outbox.publish(AGGREGATE, batch.pk, MESSAGE, QUEUE)


# -- what is shown -----------------------------------------------------------------------------


def progress(batch_id: int) -> Progress:
    """Return the items by status, and how many letters joined their groups since the draft."""
    batch = ReplayBatch.objects.get(pk=batch_id)
    found = dict(batch.items.order_by().values_list("status").annotate(n=Count("pk")))
    total = sum(found.values())
    waiting = sum(found.get(name, 0) for name in (ItemStatus.PENDING, ItemStatus.READY, ItemStatus.REPLAYING))
    groups = batch.items.order_by().values("group_id").distinct()
    newer = DeadLetter.objects.filter(
        group_id__in=groups,
        status__in=BEFORE_REPLAY,
        created_at__gt=batch.requested_at,
        generation=1,  # an edited letter is no new failure
    )
    return Progress(found, total, total - waiting, newer.exclude(replay_items__batch=batch_id).count())


def csv_rows(batch_id: int) -> Iterator[list[str]]:
    """Yield the head and then one row an item: what became of every letter (for `exports.table`)."""
    yield ["letter", "job", "lane", "canary", "outcome", "verdict", "detail", "started_at", "finished_at"]
    for item in ReplayItem.objects.filter(batch_id=batch_id).order_by("id").iterator(2_000):
        yield [
            str(item.letter_id),
            str(item.job_id),
            item.lane,
            "yes" if item.is_canary else "",
            item.status,
            item.verdict,
            item.detail,
            item.started_at.isoformat() if item.started_at else "",
            item.finished_at.isoformat() if item.finished_at else "",
        ]


# -- shared with the runs ----------------------------------------------------------------------


def locked(batch_id: int) -> ReplayBatch:
    """Return the batch, locked until the transaction ends. A batch is locked before its letters."""
    return ReplayBatch.objects.select_for_update().get(pk=batch_id)


def set_status(batch: ReplayBatch, to: BatchStatus, actor: str, reason: str, **changes: Any) -> None:
    """Move a locked batch and say so in its timeline."""
    updated = ReplayBatch.objects.filter(pk=batch.pk, status=batch.status).update(
        status=to, status_reason=clean(reason, 1000), **changes
    )
    if updated != 1:
        raise RuntimeError(f"a guarded update of a replay batch touched {updated} rows")
    _event(batch, to.value, actor, reason)
    log.info("replay_batch", batch=batch.pk, status=to.value, actor=actor)


def let_go(batch: ReplayBatch, actor: str, reason: str) -> int:
    """Give the letters that wait for this batch's replay back to the operators; return how many."""
    ready = list(batch.items.filter(status=ItemStatus.READY).values_list("pk", "letter_id"))
    letters = [letter for _, letter in ready]
    moves.move_many(
        letters,
        (LetterStatus.REPLAY_PENDING,),
        LetterStatus.VALIDATED,
        LetterAction.UNQUEUED,
        actor,
        reason,
        verb="let go",
    )
    batch.items.filter(pk__in=[pk for pk, _ in ready]).update(status=ItemStatus.PENDING)
    return len(ready)


def _refusal(batch: ReplayBatch, allowed: set[BatchStatus], row_version: int | None = None) -> Result | None:
    if batch.status not in allowed:
        last = batch.events.order_by("-id").first()
        who = f" by {last.actor} at {last.created_at:%Y-%m-%d %H:%M} UTC" if last else ""
        return Result(False, f"the batch is {batch.get_status_display().lower()}{who}")
    if row_version is not None and batch.row_version != row_version:
        return Result(False, "changed meanwhile: look again")
    return None


def _event(batch: ReplayBatch, action: str, actor: str, reason: str) -> None:
    ReplayBatchEvent.objects.create(batch=batch, action=action, actor=actor[:255], reason=clean(reason, 2000))
