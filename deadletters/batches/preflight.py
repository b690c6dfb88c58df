"""The dry run of a batch: the checks of each item that need only the database."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.utils import timezone

from deadletters.models import DeadLetter, ReplayBatch, ReplayItem
from deadletters.ports import recovery
from deadletters.states import BEFORE_REPLAY, OPEN_LETTER, ItemStatus, LetterStatus
from deadletters.types import Check, CheckKind, Failed

_AT_ONCE = 1_000
_FORGOTTEN_AT_ONCE = 5_000
DRY_RUN_SETTINGS = frozenset({"category", "is_restart", "override_reason"})  # that its verdicts depend on
_VERDICTS = {
    CheckKind.JOB: "not_dead_lettered",
    CheckKind.VERSION: "newer_version",
    CheckKind.ARTIFACT: "artifact_expired",
    CheckKind.DELIVERIES: "delivery_uncertain",
}


def dry_run(batch_id: int) -> dict[str, Any]:
    """Record whether each item could be replayed now; nothing is replayed.

    Returns `{"verdicts": {verdict: count}, "checked_at": iso time}`, which the batch keeps, as items keep
    `verdict` and `detail`. Verdicts: eligible, needs_override, not_dead_lettered, newer_version,
    artifact_expired, delivery_uncertain, circuit_open, in_another_batch, at_work, closed, gone. The stages
    of the replay check the allow-list: the paths of a change are in its artifact, or at its source.
    """
    batch = ReplayBatch.objects.get(pk=batch_id)
    port = recovery()
    counts: Counter[str] = Counter()
    items = batch.items.filter(status=ItemStatus.PENDING).order_by("id")
    last = 0
    while part := list(items.filter(pk__gt=last)[:_AT_ONCE]):
        last = part[-1].pk
        letters = DeadLetter.objects.in_bulk([item.letter_id for item in part])
        failed = [Failed(letter.job_id, letter.stage) for letter in letters.values()]
        surveyed = port.survey(failed, restart=batch.is_restart)
        for item in part:
            letter = letters.get(item.letter_id)
            checks = surveyed[letter.job_id] if letter else []
            item.verdict, item.detail = _verdict(batch, letter, checks)
            counts[item.verdict] += 1
        items.bulk_update(part, ["verdict", "detail"])  # skips items that were settled since
    report = {"verdicts": counts, "checked_at": timezone.now().isoformat()}
    same = {name: getattr(batch, name) for name in DRY_RUN_SETTINGS}
    if not ReplayBatch.objects.filter(pk=batch_id, **same).update(report=report):
        return dry_run(batch_id)  # the settings changed during the run
    return report


def clear_verdicts(batch: ReplayBatch) -> None:
    """Clear the verdicts of a locked draft whose settings changed, in bounded statements."""
    ReplayBatch.objects.filter(pk=batch.pk).update(report={})
    judged = batch.items.exclude(verdict="").order_by("id").values_list("pk", flat=True)
    while part := list(judged[:_FORGOTTEN_AT_ONCE]):
        ReplayItem.objects.filter(pk__in=part).update(verdict="", detail="")


def _verdict(batch: ReplayBatch, letter: DeadLetter | None, checks: list[Check]) -> tuple[str, str]:
    if letter is None:
        return "gone", "the dead letter no longer exists"
    if letter.status not in OPEN_LETTER:
        return "closed", f"the dead letter is {letter.state_word.lower()}"
    if letter.status == LetterStatus.REPLAY_PENDING:
        return "in_another_batch", "another batch will replay it"
    if letter.status not in BEFORE_REPLAY:
        return "at_work", f"the dead letter is {letter.state_word.lower()}"
    failed = [check for check in checks if not check.ok]
    for check in failed:
        if check.is_hard:
            return _VERDICTS.get(check.kind, "not_replayable"), check.message
    if circuit := next((check for check in failed if check.kind is CheckKind.CIRCUIT), None):
        return "circuit_open", circuit.message  # an override does not keep the batch from stopping at it
    if failed and not batch.override_reason:
        return "needs_override", failed[0].message
    return "eligible", ""
