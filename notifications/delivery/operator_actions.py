"""Decisions about deliveries by operators, and when a job ends or is replayed.

Only PENDING rows end with their job; a row with an attempt ends as that attempt did. Jobs belong to
another app, reached by the port `settings.DELIVERY_JOBS`.
"""

from __future__ import annotations

import time
from collections import Counter
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
from notifications.states import NOT_REQUIRED_DELIVERY, DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

_UNSENT = (DeliveryStatus.PENDING, DeliveryStatus.FAILED)
_RESUME_SECONDS = 10.0  # how long a request may spend on resuming reviews
REPEAT_NOTICE = "This may repeat an earlier message: whether that one reached you could not be established."


class OperatorAction(StrEnum):
    """An operator's decision about an uncertain delivery."""

    CONFIRM = "confirm"  # it arrived: there is evidence
    RESEND = "resend"  # send it again, marked as a possible repetition
    ABANDON = "abandon"  # the job continues without it


@dataclass(frozen=True, slots=True)
class _Result:
    """Result of a decision: `message` names the action, or why it failed.

    `is_shared`: it is one message about several reviews.
    """

    ok: bool
    message: str
    is_shared: bool = False


def decide(
    delivery_ids: Collection[int], action: OperatorAction, *, actor: str, reason: str
) -> tuple[int, list[str]]:
    """Apply an operator's decision to UNCERTAIN deliveries and resume their jobs.

    Returns how many were decided, and a sentence for each exception. For a digest the decision counts
    for all its reviews. `reason` is the evidence of a confirmation. A job resumes once none of its
    deliveries is uncertain; one that is not resumed within seconds is resumed by the next audit. Raises
    ValueError without a reason. Call it outside transactions: decisions stay even where a job cannot
    resume.
    """
    messages: Counter[str] = Counter()
    done: list[int] = []
    for chosen in _by_message(delivery_ids):
        result = _record(chosen[0], action, actor, reason)
        if result.ok:
            done += chosen
        if result.is_shared or not result.ok:
            messages[result.message] += 1
        if result.is_shared:
            jobs().resume_soon()  # for the other reviews of its message
    until = time.monotonic() + _RESUME_SECONDS
    for job_id in sorted(set(Delivery.objects.filter(pk__in=done).values_list("job_id", flat=True))):
        if time.monotonic() > until:
            jobs().resume_soon()
            break
        if Delivery.objects.filter(job_id=job_id, status=DeliveryStatus.UNCERTAIN).exists():
            continue
        if sentence := jobs().resume_job(job_id, actor=actor, reason=reason):
            messages[sentence] += 1
    return len(done), [f"{text} ({count}\u00d7)" if count > 1 else text for text, count in messages.items()]


def _record(delivery_id: int, action: OperatorAction, actor: str, reason: str) -> _Result:
    _require_reason(reason)
    row = store.read(delivery_id)
    members = list(lifecycle.same_message(row).order_by("id").values_list("id", "job_id"))
    if action is OperatorAction.RESEND:
        problems = list(filter(None, (jobs().why_no_resend(job_id) for _, job_id in members)))
        # One review that was superseded must not hold up the others of its message.
        if problems and len(problems) == len(members):
            return _Result(False, f"Not resent: {problems[0]}.")
    with transaction.atomic():
        if not _BY_ACTION[action](lifecycle.carrier_id(row), actor, reason):
            now = store.read(delivery_id).get_status_display().lower()
            return _Result(False, f"Nothing was changed: the delivery is {now} now.")
        for pk, job_id in members:
            jobs().note(job_id, actor=actor, words=f"delivery {pk}: {action}: {reason.strip()}")
    if len(members) > 1:
        text = f"{_DONE[action]} It is one message about {len(members)} reviews."
        return _Result(True, text, is_shared=True)
    return _Result(True, _DONE[action])


def _by_message(delivery_ids: Collection[int]) -> list[list[int]]:
    """Return the deliveries grouped by the message they share."""
    groups: dict[int, list[int]] = {}
    carriers = {row.pk: lifecycle.carrier_id(row) for row in Delivery.objects.filter(pk__in=delivery_ids)}
    for delivery_id in delivery_ids:
        groups.setdefault(carriers.get(delivery_id, delivery_id), []).append(delivery_id)
    return list(groups.values())


def supersede_unsent(job_id: int) -> int:
    """Supersede the pending rows of a job that a higher version replaces; return how many.

    May be called inside the transaction that ends the job.
    """
    return store.move_all(job_id, DeliveryStatus.PENDING, DeliveryStatus.SUPERSEDED)


def cancel_unsent(job_id: int) -> int:
    """Cancel the pending rows of a job that was cancelled or timed out; return how many."""
    return store.move_all(job_id, DeliveryStatus.PENDING, DeliveryStatus.CANCELLED)


def reset_failed(job_id: int) -> int:
    """Make the refused rows of a job due again, for a replay; return how many."""
    return store.move_all(job_id, DeliveryStatus.FAILED, DeliveryStatus.PENDING)


def revive_cancelled(job_id: int) -> int:
    """Make the cancelled rows of a job due again: its late result was accepted; return how many."""
    return store.move_all(job_id, DeliveryStatus.CANCELLED, DeliveryStatus.PENDING)


def recipient_change_problem(job_id: int, *, removed: Collection[str], added: Collection[str]) -> str:
    """Return why a job's recipients cannot be changed so, one sentence, or "".

    A recipient who was or may have been notified stays; one who was removed is not added again for
    this version.
    """
    for row in Delivery.objects.filter(job_id=job_id, recipient__in=[*removed, *added]).order_by("pk"):
        status = row.get_status_display().lower()
        if row.recipient in removed and row.status != DeliveryStatus.ABANDONED:
            if row.status == DeliveryStatus.SENT:
                return f"{row.recipient} has been notified already and cannot be removed"
            if row.status not in _UNSENT or store.may_have_happened(row):
                return f"{row.recipient} cannot be removed: its delivery is {status} and may have been made"
        elif row.recipient in added and row.status not in _UNSENT:
            return f"{row.recipient} cannot be added: its delivery of this version is {status}"
    return ""


def cancel_for_recipients(job_id: int, *, removed: Collection[str], added: Collection[str]) -> str:
    """Supersede the unsent rows of recipients that were removed from a job.

    Part of the caller's transaction. SUPERSEDED is final: neither a replay nor an accepted late result
    makes such a row due again. Returns why nothing was changed, or "".
    """
    assert connection.in_atomic_block
    rows = Delivery.objects.filter(job_id=job_id, recipient__in=[*removed, *added])
    lifecycle.lock_digests(rows)
    list(rows.select_for_update().order_by("pk"))  # wait for a worker that is sending one of them
    if problem := recipient_change_problem(job_id, removed=removed, added=added):
        return problem
    for row in rows.filter(recipient__in=removed, status__in=_UNSENT):
        if not store.move(row, DeliveryStatus.SUPERSEDED):
            raise RuntimeError("a guarded update of a delivery changed no row")
    return ""


def why_not_give_up(job_id: int) -> str:
    """Return why a job cannot end without its refused recipients, one sentence, or ""."""
    rows = Delivery.objects.filter(job_id=job_id)
    if not rows.filter(**store.REFUSED).exists():
        return "none of its recipients was refused"
    settled = (DeliveryStatus.SENT, *NOT_REQUIRED_DELIVERY)
    for row in rows.exclude(**store.REFUSED).exclude(status__in=settled).order_by("pk")[:1]:
        return f"its message to {row.recipient} is {row.get_status_display().lower()}: see to that first"
    return ""


def give_up_refused(job_id: int, *, actor: str, reason: str) -> int:
    """Abandon the messages of a job to refused recipients; return how many. (guarantee G271)

    Part of the caller's transaction. Raises ValueError without a reason.
    """
    assert connection.in_atomic_block
    count = store.abandon_refused(job_id, _evidence("recipient given up", actor, reason))
    jobs().note(job_id, actor=actor, words=f"{count} refused recipient(s) given up: {reason.strip()}")
    log.warning("recipients_given_up", job=job_id, actor=actor, count=count)
    return count


def confirm_delivered(delivery_id: int, actor: str, reason: str) -> bool:
    """Mark an UNCERTAIN delivery as sent on an operator's evidence.

    False when it is no longer UNCERTAIN. Raises ValueError without a reason.
    """
    text = _evidence("confirmed", actor, reason)
    row = store.read(delivery_id)
    notification_id = row.notification_id or f"confirmed:{row.token}"
    before = (DeliveryStatus.UNCERTAIN,)
    moved = store.back_fill(row, notification_id, SendOutcome.CONFIRMED, text, before=before)
    log.info("delivery_confirmed", delivery=delivery_id, actor=actor, done=moved)
    return moved


def resend_uncertain(delivery_id: int, actor: str, reason: str) -> bool:
    """Make an UNCERTAIN delivery due again: the operator accepts a possible duplicate.

    The message keeps its token and says that it may be a repetition; a digest is resent as it was.
    False when it is no longer UNCERTAIN. Raises ValueError without a reason.
    """
    text = _evidence("resend allowed", actor, reason)
    row = store.read(delivery_id)
    moved = row.status == DeliveryStatus.UNCERTAIN and store.release(row, REPEAT_NOTICE, text)
    log.info("delivery_released", delivery=delivery_id, actor=actor, done=moved)
    return moved


def abandon_uncertain(delivery_id: int, actor: str, reason: str) -> bool:
    """Abandon an UNCERTAIN delivery: its job continues without it.

    False when it is no longer UNCERTAIN. Raises ValueError without a reason.
    """
    note = (SendOutcome.ABANDONED, _evidence("abandoned", actor, reason))
    row = store.read(delivery_id)
    moved = row.status == DeliveryStatus.UNCERTAIN and store.move(row, DeliveryStatus.ABANDONED, note=note)
    log.warning("delivery_abandoned", delivery=delivery_id, actor=actor, done=moved)
    return moved


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise ValueError("A reason is required. It is saved with the delivery.")


def _evidence(action: str, actor: str, reason: str) -> str:
    _require_reason(reason)
    return clean(f"{action} by {actor}: {reason.strip()}")


_BY_ACTION = {
    OperatorAction.CONFIRM: confirm_delivered,
    OperatorAction.RESEND: resend_uncertain,
    OperatorAction.ABANDON: abandon_uncertain,
}
_DONE = {
    OperatorAction.CONFIRM: "Confirmed as delivered.",
    OperatorAction.RESEND: "It will be sent again, marked as a possible repetition.",
    OperatorAction.ABANDON: "Abandoned.",
}
