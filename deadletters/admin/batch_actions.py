"""What people may decide about a replay batch in the console, and who may have it checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest

from deadletters import batches
from deadletters.models import ReplayBatch
from deadletters.states import BatchStatus
from deadletters.types import Result

REPLAY = "deadletters.replay_deadletter"
APPROVE = "deadletters.approve_replaybatch"


@dataclass(frozen=True, slots=True)
class BatchAction:
    """What somebody decides about a batch on a page of its own, with a reason."""

    name: str
    label: str
    question: str
    offered: tuple[BatchStatus, ...]
    act: Callable[..., Result]
    permission: str = REPLAY
    is_final: bool = False


DECISIONS = {
    decision.name: decision
    for decision in (
        BatchAction(
            "approve",
            "Approve",
            "The batch begins when you approve it: a few letters first, the rest at its rate.",
            (BatchStatus.AWAITING,),
            batches.approve,
            APPROVE,
        ),
        BatchAction(
            "refuse",
            "Refuse",
            "The batch is cancelled with what you write here: nothing is replayed, and its letters can be "
            "worked on again.",
            (BatchStatus.AWAITING,),
            batches.refuse,
            APPROVE,
            is_final=True,
        ),
        BatchAction(
            "resume",
            "Resume",
            "The batch goes on with the letters that have no outcome yet.",
            (BatchStatus.PAUSED, BatchStatus.STOPPED),
            batches.resume,
        ),
        BatchAction(
            "cancel",
            "Cancel the batch",
            "What was replayed stays replayed; the other letters are let go and can be worked on again.",
            (
                BatchStatus.DRAFT,
                BatchStatus.AWAITING,
                BatchStatus.RUNNING,
                BatchStatus.PAUSED,
                BatchStatus.STOPPED,
            ),
            batches.cancel,
            is_final=True,
        ),
    )
}


def why_not(request: HttpRequest, batch: ReplayBatch, decision: BatchAction) -> str:
    """Return why this person cannot decide so about a batch, or an empty string."""
    return batches.why_not_approve(batch, request.user.get_username()) if decision.name == "approve" else ""


def may_check(request: HttpRequest, batch: ReplayBatch) -> bool:
    """Say whether this person may make the dry run of a batch now, apart from its settings.

    Who may approve looks before they decide; a draft is checked with its settings.
    """
    if batch.status == BatchStatus.AWAITING and request.user.has_perm(APPROVE):
        return True
    return batch.status in {BatchStatus.AWAITING, BatchStatus.PAUSED} and bool(request.user.has_perm(REPLAY))
