"""Deliveries of which nobody knows whether they were sent (specification 004, 8.2 and 8.3).

Nothing here sends. What to do is decided by `choices`; here it is done and written down, each
look-up as a row of evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import assert_never

import structlog
from django.db.models import Exists, Q, QuerySet
from django.db.models.functions import Now

from criticizer.queue import outbox
from criticizer.resilience import gate
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.delivery import evidence as history
from notifications.delivery import snapshot, store, uncertainty_policy
from notifications.delivery.dependency_names import dependency_of
from notifications.delivery.uncertainty_policy import DeliveryHistory, PolicyStep
from notifications.digests import lifecycle
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Evidence, Provider, Question, capabilities_for
from notifications.recipients import CHANNELS, split
from notifications.states import (
    DOUBTFUL_DELIVERY,
    EVIDENCE,
    UNSENT_DELIVERY,
    DeliveryStatus,
    SendOutcome,
)

log = structlog.get_logger(__name__)


class Finding(Enum):
    """What became clear about a delivery that may have happened."""

    SENT = auto()  # back-filled
    ABSENT = auto()  # proof that nothing was sent: sending is safe
    REPEATABLE = auto()  # unknown, but the provider deduplicates: sending the same again is safe
    HELD = auto()  # unknown, and repeating could reach the recipient twice


def settle_row(row: Delivery, provider: Provider | None) -> Finding:
    """Find out about a row that may have been sent, and write it down.

    The row ends as SENT, as RECONCILING (ABSENT and REPEATABLE: whoever asked decides what
    is next) or as UNCERTAIN. Raises RetryableFailure when the provider could not be asked or
    another worker moved the row, and Waiting when it must not be asked now, or when the next
    look proves nothing yet; the row stays RECONCILING. Raises Waiting too when another job finds
    out about their digest.
    """
    if row.digest_id is None:
        return _settle_row(row, provider)
    with lifecycle.alone_with(row):
        return _settle_row(row, provider)


def _settle_row(row: Delivery, provider: Provider | None) -> Finding:
    if row.notified_at is not None and not row.notification_id:
        _alert(row, "a time of notification without the provider's id")
    if row.status != DeliveryStatus.RECONCILING or row.notified_at is not None:
        _must(row, store.doubt(row))
        row = store.read(row.pk)
    if accepted := store.accepted_id(row):
        _must(row, store.back_fill(row, accepted, SendOutcome.FOUND, "an earlier attempt was accepted"))
        return Finding.SENT
    if provider is None or is_elsewhere(row, provider):
        return _hold(row, "the provider that was asked to send it is not configured any more")
    capabilities = capabilities_for(provider, split(row.recipient)[1])
    while True:
        facts = history.facts(row)
        choice = uncertainty_policy.next_step(capabilities, facts, time_scale=outbox.scaled(1.0))
        match choice.step:
            case PolicyStep.REPEAT:
                return Finding.REPEATABLE
            case PolicyStep.RESEND:
                store.clear_markers(row)
                return Finding.ABSENT
            case PolicyStep.WAIT:
                dependency = dependency_of(row.recipient, provider, looking=True)
                raise DependencyUnavailable(dependency, choice.seconds, choice.reason)
            case PolicyStep.HOLD:
                return _hold(row, choice.reason)
            case PolicyStep.LOOK:
                if _look(row, provider, facts):
                    return Finding.SENT
            case _:
                assert_never(choice.step)


def is_elsewhere(row: Delivery, provider: Provider) -> bool:
    """Say whether another provider was asked to send the row: this one's "absent" proves nothing."""
    return row.provider not in {"", provider.name, *CHANNELS}


def _look(row: Delivery, provider: Provider, facts: DeliveryHistory, *, noting: bool = True) -> bool:
    """Ask the provider once and write its answer down; True when it has the message."""
    question = Question(snapshot.thaw(row), row.notification_id, facts.first_attempt_at)
    with gate.guarded(dependency_of(row.recipient, provider, looking=True)):
        answer = provider.look_up(question)
    if answer.evidence is not Evidence.FOUND:
        if noting:
            store.note_look(row, answer.evidence, answer.detail)
        return False
    found = answer.notification_id or row.notification_id or f"found:{question.message.token}"
    _must(row, store.back_fill(row, found, SendOutcome.FOUND, "found at the provider"))
    log.info("delivery_back_filled", delivery=row.pk, job=row.job_id)
    return True


def settle(job_id: int, providers: Mapping[str, Provider], *, may_go_on: bool = False) -> int:
    """Decide the open rows of a job that has ended, without sending; return how many are left.

    What is absent goes back to PENDING, for the caller to supersede or cancel. With `may_go_on`
    the job may be replayed: what its provider would take again for one message is left for that.
    Only for jobs whose notify stage nobody holds: an open attempt is taken for an abandoned one.
    What is told in another job's message is decided with that.
    """
    left = 0
    rows = Delivery.objects.filter(job_id=job_id, status__in=DOUBTFUL_DELIVERY)
    for row in lifecycle.carriers(rows):
        try:
            finding = settle_row(row, providers.get(split(row.recipient)[0]))
            if finding is Finding.ABSENT:
                _must(row, store.move(store.read(row.pk), DeliveryStatus.PENDING, clear_markers=True))
            elif finding is Finding.REPEATABLE and not may_go_on:
                _hold(store.read(row.pk), "the job ended before its attempt was repeated")
        except (Failure, DependencyUnavailable) as error:
            left += 1
            log.warning("delivery_not_settled", delivery=row.pk, reason=_reason(error))
    return left


def ask_again(providers: Mapping[str, Provider], *, within: timedelta, limit: int = 100) -> set[int]:
    """Ask about deliveries that wait for an operator; return the jobs of those that were found.

    Only evidence that it arrived changes anything: an index may lag by hours, an archive may
    come back. Absence and silence leave the decision where it is.
    """
    found: set[int] = set()
    rows = Delivery.objects.filter(status=DeliveryStatus.UNCERTAIN, updated_at__gte=Now() - within)
    for row in lifecycle.carriers(rows).order_by("?")[:limit]:
        provider = providers.get(split(row.recipient)[0])
        if provider is None or is_elsewhere(row, provider):
            continue
        capabilities = capabilities_for(provider, split(row.recipient)[1])
        if not uncertainty_policy.can_be_asked(capabilities, knows_id=bool(row.notification_id)):
            continue
        try:
            jobs = _jobs(row)
            if _look(row, provider, history.facts(row), noting=False):
                found |= jobs
        except (Failure, DependencyUnavailable) as error:
            log.warning("delivery_not_asked_again", delivery=row.pk, reason=_reason(error))
    return found


@dataclass(slots=True)
class Audit:
    """What an audit of sent rows found. `requeued` holds the ids of the jobs to deliver again."""

    suspicious: int = 0
    back_filled: int = 0
    held: int = 0
    requeued: set[int] = field(default_factory=set)


def audit_sent(
    providers: Mapping[str, Provider],
    *,
    job_id: int | None = None,
    within: timedelta | None = None,
    limit: int = 1000,
) -> Audit:
    """Find rows that say sent without evidence and repair them (004, 8.2 second row; 8.3).

    Evidence is an attempt that the provider accepted, a look-up that found the message or an
    operator's word. A row without any was marked before it was sent: an alert is logged, the
    provider is asked, and what it does not have is cleared and due again. Rows with evidence
    are not asked about: a recipient who deletes a mail must not be sent it anew. `job_id` and
    `within` limit the audit to rows of one job and to rows changed lately.
    """
    audit = Audit()
    rows = _without_evidence()
    if job_id is not None:
        rows = rows.filter(job_id=job_id)
    if within is not None:
        rows = rows.filter(updated_at__gte=Now() - within)
    # Of what was told in one message, the row that has its attempts.
    found = {row.pk: row for row in map(lifecycle.carrier_of, rows.order_by("id")[:limit])}
    for row in found.values():
        jobs = _jobs(row)
        audit.suspicious += 1
        if row.notification_id:
            _alert(row, "no attempt was accepted")
        try:
            finding = settle_row(row, providers.get(split(row.recipient)[0]))
            if finding is Finding.ABSENT:
                _must(row, store.move(store.read(row.pk), DeliveryStatus.PENDING, clear_markers=True))
        except (Failure, DependencyUnavailable) as error:
            # It stays in reconciliation: nothing is sent before it is answered.
            log.warning("delivery_not_settled", delivery=row.pk, reason=_reason(error))
            audit.requeued |= jobs
            continue
        if finding is Finding.SENT:
            audit.back_filled += 1
        elif finding is Finding.HELD:
            audit.held += 1
        else:
            audit.requeued |= jobs
    return audit


def _without_evidence() -> QuerySet[Delivery]:
    evidence = DeliveryAttempt.objects.filter(delivery=lifecycle.evidence_key(), outcome__in=EVIDENCE)
    # The carrier is gone with its job: that is no sign of anything.
    is_lost = Q(digest__closed_at__isnull=False, digest__carrier__isnull=True)
    return Delivery.objects.exclude(is_lost).filter(
        Q(status=DeliveryStatus.SENT) & ~Exists(evidence)
        | Q(status__in=UNSENT_DELIVERY, notified_at__isnull=False)
    )


def _jobs(row: Delivery) -> set[int]:
    """Return the jobs of what is told in one message with the row."""
    if row.digest_id is None:
        return {row.job_id}
    return set(lifecycle.same_message(row).values_list("job_id", flat=True))


def _reason(error: Failure | DependencyUnavailable) -> str:
    return (
        f"waiting for {error.dependency}"
        if isinstance(error, DependencyUnavailable)
        else str(error.error_class)
    )


def _hold(row: Delivery, reason: str) -> Finding:
    failure = UncertainFailure(ErrorClass.DELIVERY_UNCERTAIN, Component.PROVIDER, reason)
    _must(row, store.move(row, DeliveryStatus.UNCERTAIN, failure=failure))
    log.error("delivery_held", delivery=row.pk, job=row.job_id, reason=reason)
    return Finding.HELD


def _alert(row: Delivery, reason: str) -> None:
    # Somebody wrote "sent" before the provider said so: the ordering contract was violated.
    log.error("delivery_evidence_missing", delivery=row.pk, job=row.job_id, reason=reason)


def _must(row: Delivery, moved: bool) -> None:
    if not moved:
        if row.digest_id is not None:
            raise lifecycle.digest_in_progress()  # all jobs of a digest come at once: not a failure
        raise RetryableFailure(
            ErrorClass.WRITE_CONFLICT,
            Component.DATABASE,
            "another worker moved the delivery at the same time",
        )
