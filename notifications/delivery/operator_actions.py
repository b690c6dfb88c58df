"""What others decide about deliveries: the end of a job, a replay, an operator's word.

Only PENDING rows end with their job. A row with an attempt is decided by that attempt. What
the job of a delivery is, and how it goes on, this room does not know: it asks the port
`settings.DELIVERY_JOBS`.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import structlog
from django.db import connection, transaction

from criticizer.redaction import clean
from notifications.delivery import store
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.ports import jobs
from notifications.states import DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

_UNSENT = (DeliveryStatus.PENDING, DeliveryStatus.FAILED)
_GO_ON_SECONDS = 10.0  # how long a person waits for the reviews of a set of decisions
REPEAT_NOTICE = "This may repeat an earlier message: whether that one reached you could not be established."


class OperatorAction(StrEnum):
    """What an operator can say about a delivery in doubt."""

    CONFIRM = "confirm"  # it arrived: there is evidence
    RESEND = "resend"  # send it again, marked as a possible repetition
    ABANDON = "abandon"  # give it up: the job goes on without it


@dataclass(frozen=True, slots=True)
class Decided:
    """`message` says in words what was done, or why nothing was. `is_shared`: it told several reviews."""

    ok: bool
    message: str
    is_shared: bool = False


def decide(delivery_id: int, decision: OperatorAction, *, actor: str, reason: str) -> Decided:
    """Do what an operator decided about an UNCERTAIN delivery, and let its job go on by itself.

    Of a digest, one message about several reviews, it is decided as a whole: all their jobs go on.
    `reason` is the evidence of a confirmation. The job goes on once none of its deliveries is
    in doubt. Raises ValueError without a reason; refusals change nothing. Call it in no
    transaction: the decision holds even where the job cannot go on.
    """
    decided = _record(delivery_id, decision, actor, reason)
    if not decided.ok:
        return decided
    row = store.read(delivery_id)
    job_id = row.job_id
    if row.digest_id is not None:
        jobs().resume_soon()  # for the other reviews of its message
    if more := _waiting(job_id):
        goes_on = f"{more} more of this review {'waits' if more == 1 else 'wait'} for a decision."
    else:
        goes_on = jobs().resume_job(job_id, actor=actor, reason=reason)
    return Decided(True, f"{decided.message} {goes_on}".strip())


def decide_many(
    delivery_ids: Collection[int], decision: OperatorAction, *, actor: str, reason: str
) -> tuple[int, list[str]]:
    """Decide the same about a set; return how many, and for whatever is not as wished one sentence.

    All decisions are recorded before the first job goes on: that asks providers harmlessly and
    takes time. What is not put to work within seconds goes on with the next audit.
    """
    words: dict[str, int] = {}
    done: list[int] = []
    for chosen in _by_message(delivery_ids):
        decided = _record(chosen[0], decision, actor, reason)
        if decided.ok:
            done += chosen
        if decided.is_shared or not decided.ok:
            words[decided.message] = words.get(decided.message, 0) + 1
        if decided.is_shared:
            jobs().resume_soon()
    until = time.monotonic() + _GO_ON_SECONDS
    for job_id in sorted(set(Delivery.objects.filter(pk__in=done).values_list("job_id", flat=True))):
        if time.monotonic() > until:
            jobs().resume_soon()
            break
        if not _waiting(job_id) and (problem := jobs().resume_job(job_id, actor=actor, reason=reason)):
            words[problem] = words.get(problem, 0) + 1
    return len(done), [f"{text} ({count}\u00d7)" if count > 1 else text for text, count in words.items()]


def _record(delivery_id: int, decision: OperatorAction, actor: str, reason: str) -> Decided:
    _words(decision, actor, reason)
    row = store.read(delivery_id)
    told = list(lifecycle.same_message(row).order_by("id").values_list("id", "job_id"))
    if decision is OperatorAction.RESEND:
        problems = list(filter(None, (jobs().why_no_resend(job_id) for _, job_id in told)))
        # One review that was replaced meanwhile does not keep the others of its message from anybody.
        if problems and len(problems) == len(told):
            return Decided(False, f"Not resent: {problems[0]}.")
    with transaction.atomic():
        if not _BY_DECISION[decision](lifecycle.carrier_id(row), actor, reason):
            now = store.read(delivery_id).get_status_display().lower()
            return Decided(False, f"Nothing was changed: the delivery is {now} by now.")
        for pk, job_id in told:
            jobs().note(job_id, actor=actor, words=f"delivery {pk}: {decision}: {reason.strip()}")
    if len(told) > 1:
        return Decided(
            True, f"{_DONE[decision]} It is one message about {len(told)} reviews.", is_shared=True
        )
    return Decided(True, _DONE[decision])


def _by_message(delivery_ids: Collection[int]) -> list[list[int]]:
    """Return the deliveries, those of one message together."""
    found: dict[int, list[int]] = {}
    carriers = {row.pk: lifecycle.carrier_id(row) for row in Delivery.objects.filter(pk__in=delivery_ids)}
    for delivery_id in delivery_ids:
        found.setdefault(carriers.get(delivery_id, delivery_id), []).append(delivery_id)
    return list(found.values())


def _waiting(job_id: int) -> int:
    return Delivery.objects.filter(job_id=job_id, status=DeliveryStatus.UNCERTAIN).count()


def supersede_unsent(job_id: int) -> int:
    """Give up the unsent rows of a job that a higher version replaces; return how many.

    May be called inside the transaction that ends the job.
    """
    return store.move_all(job_id, DeliveryStatus.PENDING, DeliveryStatus.SUPERSEDED)


def cancel_unsent(job_id: int) -> int:
    """Give up the unsent rows of a job that was cancelled or timed out; return how many."""
    return store.move_all(job_id, DeliveryStatus.PENDING, DeliveryStatus.CANCELLED)


def why_not_taken_off(job_id: int, *, removed: Collection[str], added: Collection[str]) -> str:
    """Return why a job's recipients cannot be changed so, one sentence, or an empty string.

    Who was told, or may have been, stays; who was taken off once is not told of this version again.
    """
    for row in Delivery.objects.filter(job_id=job_id, recipient__in=[*removed, *added]).order_by("pk"):
        word = row.get_status_display().lower()
        if row.recipient in removed and row.status != DeliveryStatus.ABANDONED:
            if row.status == DeliveryStatus.SENT:
                return f"{row.recipient} has been told already and cannot be removed"
            if row.status not in _UNSENT or store.may_have_happened(row):
                return f"{row.recipient} cannot be removed: its delivery is {word} and may have been made"
        elif row.recipient in added and row.status not in _UNSENT:
            return f"{row.recipient} cannot be added: its delivery of this version is {word}"
    return ""


def cancel_for_recipients(job_id: int, *, removed: Collection[str], added: Collection[str]) -> str:
    """Give up the unsent rows of recipients that a job does not have any more.

    Part of the caller's transaction. SUPERSEDED is final: neither a replay nor an accepted late
    result makes such a row due again. Returns why it cannot be, having changed nothing, or "".
    """
    assert connection.in_atomic_block
    rows = Delivery.objects.filter(job_id=job_id, recipient__in=[*removed, *added])
    lifecycle.hold(rows)
    list(rows.select_for_update().order_by("pk"))  # a worker that is at one of them is waited for
    if problem := why_not_taken_off(job_id, removed=removed, added=added):
        return problem
    for row in rows.filter(recipient__in=removed, status__in=_UNSENT):
        if not store.move(row, DeliveryStatus.SUPERSEDED):
            raise RuntimeError("a guarded update of a delivery touched no row")
    return ""


def leave_digests(job_id: int) -> int:
    """Have what waits of a job told by itself, once it is reviewed anew; return how many there were."""
    return store.leave_digests(job_id)


def reset_failed(job_id: int) -> int:
    """Make the refused rows of a job due again, for a replay; return how many."""
    return store.move_all(job_id, DeliveryStatus.FAILED, DeliveryStatus.PENDING)


def revive_cancelled(job_id: int) -> int:
    """Make the cancelled rows of a job due again: its late result was accepted; return how many."""
    return store.move_all(job_id, DeliveryStatus.CANCELLED, DeliveryStatus.PENDING)


def confirm_delivered(delivery_id: int, actor: str, reason: str) -> bool:
    """Mark an UNCERTAIN delivery as sent on an operator's word.

    False when it is not UNCERTAIN any more. Raises ValueError without a reason.
    """
    moved = store.confirm(delivery_id, _words("confirmed", actor, reason))
    log.info("delivery_confirmed", delivery=delivery_id, actor=actor, done=moved)
    return moved


def resend_uncertain(delivery_id: int, actor: str, reason: str) -> bool:
    """Make an UNCERTAIN delivery due again: the operator accepts a possible duplicate.

    The message keeps its token and tells its recipient that it may be a repetition; a digest is
    resent as it was. False when the delivery is not UNCERTAIN any more. Raises ValueError without
    a reason.
    """
    words = clean(_words("resend allowed", actor, reason))
    row = store.read(delivery_id)
    moved = row.status == DeliveryStatus.UNCERTAIN and store.release(row, REPEAT_NOTICE, words)
    log.info("delivery_released", delivery=delivery_id, actor=actor, done=moved)
    return moved


def abandon_uncertain(delivery_id: int, actor: str, reason: str) -> bool:
    """Give an UNCERTAIN delivery up: its job goes on without it.

    False when it is not UNCERTAIN any more. Raises ValueError without a reason.
    """
    words = clean(_words("abandoned", actor, reason))
    row = store.read(delivery_id)
    moved = row.status == DeliveryStatus.UNCERTAIN and store.move(
        row, DeliveryStatus.ABANDONED, note=(SendOutcome.ABANDONED, words)
    )
    log.warning("delivery_abandoned", delivery=delivery_id, actor=actor, done=moved)
    return moved


def _words(decision: str, actor: str, reason: str) -> str:
    if not reason.strip():
        raise ValueError("Give a reason: it is kept with the delivery.")
    return f"{decision} by {actor}: {reason.strip()}"


_BY_DECISION = {
    OperatorAction.CONFIRM: confirm_delivered,
    OperatorAction.RESEND: resend_uncertain,
    OperatorAction.ABANDON: abandon_uncertain,
}
_DONE = {
    OperatorAction.CONFIRM: "Confirmed as delivered.",
    OperatorAction.RESEND: "To be sent again, marked as a possible repetition.",
    OperatorAction.ABANDON: "Abandoned.",
}
