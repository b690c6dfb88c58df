"""How a replay batch ended, in sentences: its dead letters, their groups, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Q

from deadletters.models import DeadLetter, DeadLetterGroup, ReplayBatch
from deadletters.states import BatchStatus, ItemStatus, LetterStatus

GROUPS_SHOWN = 5
_ENDED = (BatchStatus.FINISHED, BatchStatus.STOPPED, BatchStatus.CANCELLED)
# Outcome of an item -> the end of "2 …".
_WORDS: Mapping[str, str] = {
    ItemStatus.FAILED: "failed again",
    ItemStatus.ENDED: "ended otherwise",
    ItemStatus.SKIPPED: "skipped",
    ItemStatus.CANCELLED: "not replayed",
}


def outcome_of(
    batch: ReplayBatch, by_status: Mapping[str, int], *, sees_groups: bool
) -> dict[str, Any] | None:
    """Return the outcome of a batch that has ended or stopped, None for any other.

    `counts` is such as "2 resolved, 1 failed again"; `next` the sentences on what to do; `groups` the
    groups of its dead letters, at most `GROUPS_SHOWN`, and none for users who may not see groups.
    """
    if batch.status not in _ENDED:
        return None
    succeeded = _succeeded(batch)
    parts = [f"{count} {words}" for words, count in succeeded.items() if count]
    parts += [f"{by_status[status]} {words}" for status, words in _WORDS.items() if by_status.get(status)]
    return {
        "counts": ", ".join(parts),
        "next": _next_steps(batch, by_status, succeeded),
        "groups": _groups(batch) if sees_groups else [],
        "look": "finished" if by_status.get(ItemStatus.SUCCEEDED) == batch.item_count else "partial",
    }


def _succeeded(batch: ReplayBatch) -> dict[str, int]:
    """Return what became of the dead letters whose replay succeeded."""
    letters = DeadLetter.objects.filter(
        pk__in=batch.items.filter(status=ItemStatus.SUCCEEDED).values("letter_id")
    )
    is_verifying = Q(status=LetterStatus.VERIFYING)
    counted = letters.aggregate(
        resolved=Count("pk", filter=Q(status=LetterStatus.RESOLVED)),
        verified=Count("pk", filter=is_verifying & Q(verified_at__isnull=False)),
        unverified=Count("pk", filter=is_verifying & Q(verified_at__isnull=True)),
        changed=Count("pk", filter=~Q(status__in=(LetterStatus.RESOLVED, LetterStatus.VERIFYING))),
    )
    return {
        "resolved": counted["resolved"],
        "verified and not resolved yet": counted["verified"],
        "replayed and not verified yet": counted["unverified"],
        "replayed and changed since": counted["changed"],
    }


def _next_steps(batch: ReplayBatch, by_status: Mapping[str, int], succeeded: Mapping[str, int]) -> list[str]:
    steps = []
    if batch.status == BatchStatus.STOPPED:
        steps.append("Remove the cause and resume the batch, or cancel it.")
    elif by_status.get(ItemStatus.FAILED):
        steps.append(
            "Open what failed again below: its newest failure says why. Remove that cause and replay."
        )
    if by_status.get(ItemStatus.SKIPPED):
        steps.append("The details below say why a dead letter was skipped.")
    if succeeded["verified and not resolved yet"]:
        steps.append("Resolve what is verified.")
    if succeeded["replayed and not verified yet"]:
        end = (
            "is then resolved by itself" if batch.resolves_verified else "can be resolved once it is verified"
        )
        steps.append(f"What is not verified yet waits for the proof of its effect, and {end}.")
    return steps


def _groups(batch: ReplayBatch) -> list[DeadLetterGroup]:
    letters = batch.items.values("letter_id")
    now = DeadLetter.objects.filter(pk__in=letters).values("group_id")  # of the newest failure
    chosen = batch.items.values("group_id")
    found = DeadLetterGroup.objects.filter(Q(pk__in=now) | Q(pk__in=chosen)).order_by("-open_count", "pk")
    return list(found[:GROUPS_SHOWN])
