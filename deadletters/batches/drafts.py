"""Draft and configure a batch: a frozen selection, its canaries, its settings, its rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction

from criticizer.redaction import clean
from criticizer.wording import plural_count
from deadletters import transitions
from deadletters.batches.preflight import DRY_RUN_SETTINGS, clear_verdicts
from deadletters.batches.store import is_large, locked, note, refusal
from deadletters.models import DeadLetter, ReplayBatch, ReplayItem
from deadletters.ports import recovery
from deadletters.states import UNENDED_BATCH, BatchStatus, Category, ItemStatus
from deadletters.types import Result, link_problem

MAX_ITEMS = 50_000
MAX_RATE_PER_MINUTE = 6_000
_AT_ONCE = 1_000
# Settings of a draft, by the names its timeline uses.
_SETTINGS = {
    "category": "category",
    "evidence_link": "ticket",
    "evidence_note": "what was done",
    "override_reason": "failed checks overridden",
    "is_restart": "begins at the first stage",
    "resolves_verified": "resolves what it verified",
    "canary_size": "first a few",
    "rate_per_minute": "a minute",
    "max_in_flight": "at most at once",
}
_SHOWN = 500  # characters of a setting that the timeline keeps
_RANGES = {"canary_size": (0, 100), "rate_per_minute": (1, MAX_RATE_PER_MINUTE), "max_in_flight": (1, 500)}
_TEXTS = {"evidence_link": 500, "evidence_note": 4000, "override_reason": 4000}


def draft(
    *,
    filter: Mapping[str, Any],  # noqa: A002
    ids: Iterable[int],
    actor: str,
    reason: str,
    **given: Any,
) -> ReplayBatch:
    """Freeze a selection of letters. Nothing runs; ids without a letter are left out.

    `filter` shows people how the selection was made. `given` are settings as for `configure`. Raises
    ValueError: no reason, no letter, too many, a setting out of range.
    """
    transitions.require_reason(reason)
    chosen = _checked(given)
    wanted = sorted(set(ids))
    if len(wanted) > MAX_ITEMS:
        raise ValueError(f"A batch holds at most {MAX_ITEMS} dead letters, not {len(wanted)}.")
    with transaction.atomic():
        batch = ReplayBatch.objects.create(
            filter=dict(filter), reason=clean(reason.strip(), 4000), requested_by=actor[:255], **chosen
        )
        for start in range(0, len(wanted), _AT_ONCE):
            _freeze(batch, wanted[start : start + _AT_ONCE])
        count = batch.items.count()
        if not count:
            raise ValueError("None of these dead letters exists.")
        # From now on the database refuses to run a large batch without approval.
        ReplayBatch.objects.filter(pk=batch.pk).update(item_count=count, needs_approval=is_large(count))
        choose_canaries(batch)
        note(batch, "drafted", actor, f"{plural_count(count, 'dead letter')}: {reason}")
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
    """Mark the next few items that go first, from as many groups as possible."""
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

    The actor becomes one of its makers, who cannot approve it. A change that the verdicts of its dry run
    depend on clears them. Settings: `category` (of letters not triaged yet; "" lets the error class suggest
    it), `evidence_link`, `evidence_note` (of letters not remediated yet), `override_reason`, `is_restart`,
    `canary_size` (0 to 100), `rate_per_minute` (1 to 6000), `max_in_flight` (1 to 500). Raises ValueError
    when one is out of range.
    """
    changes = _checked(given)
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, {BatchStatus.DRAFT}, row_version):
            return refused
        changes = {name: value for name, value in changes.items() if value != getattr(batch, name)}
        if not changes:
            return Result(True, "nothing has changed")
        ReplayBatch.objects.filter(pk=batch_id).update(**changes)
        if "canary_size" in changes:
            batch.items.update(is_canary=False)
            choose_canaries(locked(batch_id))
        if DRY_RUN_SETTINGS & changes.keys():
            clear_verdicts(batch)
        note(batch, "configured", actor, _words(changes))
    return Result(True, "changed")


def _words(changes: Mapping[str, Any]) -> str:
    """Return settings as text: `failed checks overridden: the host has moved; a minute: 7`."""

    def shown(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return clean(str(value), _SHOWN) or "nothing"

    return "; ".join(
        f"{words}: {shown(changes[name])}" for name, words in _SETTINGS.items() if name in changes
    )


def set_pace(
    batch_id: int, *, actor: str, rate_per_minute: int, max_in_flight: int | None = None, reason: str = ""
) -> Result:
    """Change the rate of a batch, also while it runs. Raises ValueError when out of range."""
    at_most = {"max_in_flight": max_in_flight} if max_in_flight else {}
    changes = _checked({"rate_per_minute": rate_per_minute, **at_most})
    with transaction.atomic():
        batch = locked(batch_id)
        if refused := refusal(batch, UNENDED_BATCH):
            return refused
        ReplayBatch.objects.filter(pk=batch_id).update(**changes, next_item_at=None)
        at_once = changes.get("max_in_flight", batch.max_in_flight)
        pace = f"{rate_per_minute} a minute, at most {at_once} at once"
        note(batch, "pace", actor, f"{pace}: {reason.strip()}" if reason.strip() else pace)
    return Result(True, f"{pace} from now on")


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := given.keys() - _SETTINGS.keys():
        raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
    changes = dict(given)
    for name in _RANGES.keys() & changes.keys():
        least, most = _RANGES[name]
        changes[name] = int(changes[name])
        if not least <= changes[name] <= most:
            raise ValueError(f"{name} must be between {least} and {most}, not {changes[name]}")
    if changes.get("category") and changes["category"] not in Category.values:
        raise ValueError(f"category is not one of: {', '.join(Category.values)}")
    if problem := link_problem(str(changes.get("evidence_link", "")).strip(), "the ticket's link"):
        raise ValueError(problem)
    for name in _TEXTS.keys() & changes.keys():
        changes[name] = clean(str(changes[name]).strip(), _TEXTS[name])
    return changes
