"""Settles deliveries whose attempt has no outcome (guarantees G50 to G52).

Sends nothing. `uncertainty_policy` decides the next step; this module carries it out and stores each
look-up as an attempt row.
"""

from __future__ import annotations

from contextlib import nullcontext
from enum import Enum, auto
from typing import assert_never

import structlog
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from criticizer.queue import outbox
from criticizer.resilience import gate
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    RetryableFailure,
    UncertainFailure,
)
from deadletters import alerts
from notifications.config import dependency_of
from notifications.delivery import snapshot, store, uncertainty_policy
from notifications.delivery.uncertainty_policy import DeliveryHistory, LookupResult, PolicyStep
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.providers.base import Evidence, Provider, Question, capabilities_for
from notifications.recipients import CHANNELS, split
from notifications.states import MAY_HAVE_ARRIVED, DeliveryStatus, SendOutcome

log = structlog.get_logger(__name__)

_LOOKS = {SendOutcome.ABSENT: Evidence.ABSENT, SendOutcome.UNKNOWN: Evidence.UNKNOWN}


class Finding(Enum):
    """Result of reconciling a delivery."""

    SENT = auto()  # back-filled
    ABSENT = auto()  # proof that nothing was sent: sending is safe
    REPEATABLE = auto()  # unknown, but the provider deduplicates: sending the same again is safe
    HELD = auto()  # unknown, and repeating could reach the recipient twice


def settle_row(row: Delivery, provider: Provider | None) -> Finding:
    """Settle a row that may have been sent: find out, and record the result.

    The row ends as SENT, RECONCILING (ABSENT and REPEATABLE: the caller decides what is next) or
    UNCERTAIN. Raises RetryableFailure when the provider could not be asked or another worker moved
    the row; DependencyUnavailable when the provider must not be asked now, when the next look-up proves
    nothing yet, or when another job reconciles their digest. The row then stays RECONCILING.
    """
    with lifecycle.exclusive_lookup(row) if row.digest_id is not None else nullcontext():
        return _settle_row(row, provider)


def _settle_row(row: Delivery, provider: Provider | None) -> Finding:
    if row.notified_at is not None and not row.notification_id:
        report_missing_evidence(row, "a time of notification without the provider's id")
    if row.status != DeliveryStatus.RECONCILING or row.notified_at is not None:
        require_moved(row, store.start_reconciling(row))
        row = store.read(row.pk)
    if accepted := store.accepted_id(row):
        require_moved(
            row, store.back_fill(row, accepted, SendOutcome.FOUND, "an earlier attempt was accepted")
        )
        return Finding.SENT
    if provider is None or is_elsewhere(row, provider):
        return hold_for_operator(row, "the provider that was asked to send it is no longer configured")
    capabilities = capabilities_for(provider, split(row.recipient)[1])
    while True:
        facts = history_of(row)
        decision = uncertainty_policy.next_step(capabilities, facts, time_scale=outbox.scaled(1.0))
        match decision.step:
            case PolicyStep.REPEAT:
                return Finding.REPEATABLE
            case PolicyStep.RESEND:
                store.clear_markers(row)
                return Finding.ABSENT
            case PolicyStep.WAIT:
                dependency = dependency_of(row.recipient, provider, looking=True)
                raise DependencyUnavailable(dependency, decision.seconds, decision.reason)
            case PolicyStep.HOLD:
                return hold_for_operator(row, decision.reason)
            case PolicyStep.LOOK:
                if look_up(row, provider, facts):
                    return Finding.SENT
            case _:
                assert_never(decision.step)


def history_of(row: Delivery) -> DeliveryHistory:
    """Return what the row and its attempts record, as input of `next_step`. One statement."""
    attempts = list(
        row.attempt_rows.order_by("id")
        .annotate(now=Now())
        .values_list("outcome", "started_at", "finished_at", "now")
    )
    first = last = since = None
    looks: list[LookupResult] = []
    resends = 0
    for outcome, started_at, finished_at, _ in attempts:
        if outcome in {SendOutcome.RELEASED, SendOutcome.CONFIRMED}:
            first, looks, resends = None, [], 0
        elif outcome in _LOOKS:
            looks.append(LookupResult(_LOOKS[SendOutcome(outcome)], (finished_at or started_at).timestamp()))
        elif outcome in MAY_HAVE_ARRIVED:
            resends += any(look.evidence is Evidence.ABSENT for look in looks)
            looks = []
            first = first or started_at
            last, since = started_at, finished_at or started_at
    # Without any attempt the row's own times stand in.
    now = attempts[-1][-1] if attempts else timezone.now()
    return DeliveryHistory(
        now=now.timestamp(),
        first_attempt_at=(first or row.created_at).timestamp(),
        last_attempt_at=(last or row.created_at).timestamp(),
        uncertain_since=(since or row.updated_at).timestamp(),
        has_provider_id=bool(row.notification_id),
        looks=tuple(looks),
        resends=resends,
    )


def is_elsewhere(row: Delivery, provider: Provider) -> bool:
    """Return whether another provider has sent the row: this one's "absent" proves nothing."""
    return row.provider not in {"", provider.name, *CHANNELS}


def look_up(row: Delivery, provider: Provider, facts: DeliveryHistory, *, record: bool = True) -> bool:
    """Look the message up once and record the answer; True when the provider has it."""
    question = Question(snapshot.thaw(row), row.notification_id, facts.first_attempt_at)
    with gate.guarded(dependency_of(row.recipient, provider, looking=True)), one_call():
        answer = provider.look_up(question)
    if answer.evidence is not Evidence.FOUND:
        if record:
            store.record_lookup(row, answer.evidence, answer.detail)
        return False
    found = answer.notification_id or row.notification_id or f"found:{question.message.token}"
    require_moved(row, store.back_fill(row, found, SendOutcome.FOUND, "found at the provider"))
    log.info("delivery_back_filled", delivery=row.pk, job=row.job_id)
    return True


def hold_for_operator(row: Delivery, reason: str) -> Finding:
    failure = UncertainFailure(ErrorClass.DELIVERY_UNCERTAIN, Component.PROVIDER, reason)
    require_moved(row, store.move(row, DeliveryStatus.UNCERTAIN, failure=failure))
    log.error("delivery_held", delivery=row.pk, job=row.job_id, reason=reason)
    return Finding.HELD


def report_missing_evidence(row: Delivery, reason: str) -> None:
    # The row was marked before the provider had accepted it: "send, then mark" was violated.
    log.error("delivery_evidence_missing", delivery=row.pk, job=row.job_id, reason=reason)
    alerts.tell(
        "evidence_missing",
        key=f"evidence-missing:{row.pk}",
        path=reverse("admin:notifications_delivery_change", args=[row.pk]),
        delivery=row.pk,
        job=row.job_id,
        reason=reason,
    )


def require_moved(row: Delivery, moved: bool) -> None:
    """Raise what a job does whose delivery another worker moved."""
    if moved:
        return
    if row.digest_id is not None:
        raise lifecycle.digest_in_progress()  # all jobs of a digest come at once: not a failure
    raise RetryableFailure(
        ErrorClass.WRITE_CONFLICT,
        Component.DATABASE,
        "another worker moved the delivery at the same time",
        context={"delivery": row.pk, "attempts": row.attempts},
    )
