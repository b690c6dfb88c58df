"""What others decide about deliveries: the end of a job, a replay, an operator's word.

Only PENDING rows end with their job. A row with an attempt is decided by that attempt.
"""

from __future__ import annotations

import structlog

from criticizer.redaction import clean
from notifications import ledger
from notifications.states import DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)


def supersede_unsent(job_id: int) -> int:
    """Give up the unsent rows of a job that a higher version replaces; return how many.

    May be called inside the transaction that ends the job.
    """
    return ledger.move_all(job_id, DeliveryStatus.PENDING, DeliveryStatus.SUPERSEDED)


def cancel_unsent(job_id: int) -> int:
    """Give up the unsent rows of a job that was cancelled or timed out; return how many."""
    return ledger.move_all(job_id, DeliveryStatus.PENDING, DeliveryStatus.CANCELLED)


def reset_failed(job_id: int) -> int:
    """Make the refused rows of a job due again, for a replay; return how many."""
    return ledger.move_all(job_id, DeliveryStatus.FAILED, DeliveryStatus.PENDING)


def revive_cancelled(job_id: int) -> int:
    """Make the cancelled rows of a job due again: its late result was accepted; return how many."""
    return ledger.move_all(job_id, DeliveryStatus.CANCELLED, DeliveryStatus.PENDING)


def confirm_delivered(delivery_id: int, actor: str, reason: str) -> bool:
    """Mark an UNCERTAIN delivery as sent on an operator's word.

    False when it is not UNCERTAIN any more. Raises ValueError without a reason.
    """
    moved = ledger.confirm(delivery_id, _words("confirmed", actor, reason))
    log.info("delivery_confirmed", delivery=delivery_id, actor=actor, done=moved)
    return moved


def resend_uncertain(delivery_id: int, actor: str, reason: str) -> bool:
    """Make an UNCERTAIN delivery due again: the operator accepts a possible duplicate.

    False when it is not UNCERTAIN any more. Raises ValueError without a reason.
    """
    words = _words("resend allowed", actor, reason)
    row = ledger.read(delivery_id)
    moved = row.status == DeliveryStatus.UNCERTAIN and ledger.move(
        row, DeliveryStatus.PENDING, clear_markers=True, note=(SendOutcome.RELEASED, clean(words))
    )
    log.info("delivery_released", delivery=delivery_id, actor=actor, done=moved)
    return moved


def _words(decision: str, actor: str, reason: str) -> str:
    if not reason.strip():
        raise ValueError("Give a reason: it is kept with the delivery.")
    return f"{decision} by {actor}: {reason.strip()}"
