"""Checks outside a job's own stage: ended jobs, uncertain rows, rows marked as sent.

Nothing here sends. The jobs of what has to be sent again are returned to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from django.db.models import Exists, Q, QuerySet
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience import gate
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import DependencyUnavailable, Failure
from notifications.config import dependency_of
from notifications.delivery import reconcile, snapshot, store, uncertainty_policy
from notifications.delivery.reconcile import Finding, is_elsewhere, require_moved
from notifications.digests import lifecycle
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Capabilities, Evidence, Provider, Question, capabilities_for
from notifications.recipients import split
from notifications.states import EVIDENCE, UNRESOLVED_DELIVERY, UNSENT_DELIVERY, DeliveryStatus

log = structlog.get_logger(__name__)

# Random ids, each answered by the primary key.
_PICK = """
WITH ends AS (SELECT min(id) AS low, max(id) AS high FROM deliveries),
places AS (SELECT low + floor(random() * (high - low + 1))::bigint AS place
             FROM ends, generate_series(1, %(size)s))
SELECT DISTINCT d.id FROM places, LATERAL (
  SELECT id FROM deliveries WHERE id >= places.place ORDER BY id LIMIT 1) d"""


def settle(job_id: int, providers: Mapping[str, Provider], *, may_go_on: bool = False) -> int:
    """Reconcile the open rows of an ended job, without sending; return how many are left.

    An absent one goes back to PENDING, for the caller to supersede or cancel. With `may_go_on` the job
    may be replayed: rows that its provider would deduplicate are left for that. Only for jobs whose
    notify stage has no worker: an open attempt counts as a lost one. A row of another job's digest is
    reconciled with that digest.
    """
    left = 0
    rows = Delivery.objects.filter(job_id=job_id, status__in=UNRESOLVED_DELIVERY)
    for row in lifecycle.carriers(rows):
        try:
            if _settle_row(row, providers) is Finding.REPEATABLE and not may_go_on:
                reconcile.hold_for_operator(
                    store.read(row.pk), "the job ended before its attempt was repeated"
                )
        except (Failure, DependencyUnavailable) as error:
            left += 1
            log.warning("delivery_not_settled", delivery=row.pk, reason=_reason(error))
    return left


def recheck_uncertain(providers: Mapping[str, Provider], *, within: timedelta, limit: int = 100) -> set[int]:
    """Look up deliveries that wait for an operator; return the jobs of those that were found.

    Only evidence of arrival changes anything: an index may lag by hours, an archive may come back.
    Absence and silence leave the decision to the operator.
    """
    found: set[int] = set()
    rows = Delivery.objects.filter(status=DeliveryStatus.UNCERTAIN, updated_at__gte=Now() - within)
    for row in lifecycle.carriers(rows).order_by("?")[:limit]:
        channel, address = split(row.recipient)
        provider = providers.get(channel)
        if provider is None or is_elsewhere(row, provider):
            continue
        if not uncertainty_policy.can_look_up(
            capabilities_for(provider, address), has_provider_id=bool(row.notification_id)
        ):
            continue
        try:
            jobs = _jobs(row)
            if reconcile.look_up(row, provider, reconcile.history_of(row), record=False):
                found |= jobs
        except (Failure, DependencyUnavailable) as error:
            log.warning("delivery_not_asked_again", delivery=row.pk, reason=_reason(error))
    return found


@dataclass(slots=True)
class Audit:
    """Result of an audit of sent rows. `requeued`: ids of the jobs to deliver again."""

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
    """Find rows marked as sent without evidence and repair them (guarantee G53).

    Evidence is an accepted attempt, a look-up that found the message or an operator's confirmation. For
    a row without any, an alert is logged and the provider is asked; an absent message is cleared and due
    again. Rows with evidence are not looked up: a recipient who deletes a mail must not get it again.
    `job_id` and `within` limit the audit to rows of one job and to recently changed rows.
    """
    audit = Audit()
    rows = _without_evidence()
    if job_id is not None:
        rows = rows.filter(job_id=job_id)
    if within is not None:
        rows = rows.filter(updated_at__gte=Now() - within)
    # For one message about several reviews, the row that has its attempts.
    found = {row.pk: row for row in map(lifecycle.carrier_of, rows.order_by("id")[:limit])}
    for row in found.values():
        jobs = _jobs(row)
        audit.suspicious += 1
        if row.notification_id:
            reconcile.report_missing_evidence(row, "no attempt was accepted")
        try:
            finding = _settle_row(row, providers)
        except (Failure, DependencyUnavailable) as error:
            # The row stays RECONCILING: nothing is sent before it is reconciled.
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


def _settle_row(row: Delivery, providers: Mapping[str, Provider]) -> Finding:
    """Reconcile a row; make one that was proven absent PENDING."""
    finding = reconcile.settle_row(row, providers.get(split(row.recipient)[0]))
    if finding is Finding.ABSENT:
        require_moved(row, store.move(store.read(row.pk), DeliveryStatus.PENDING, clear_markers=True))
    return finding


def _without_evidence() -> QuerySet[Delivery]:
    evidence = DeliveryAttempt.objects.filter(delivery=lifecycle.evidence_key(), outcome__in=EVIDENCE)
    # The carrier was deleted with its job: no sign of a wrong mark.
    is_lost = Q(digest__closed_at__isnull=False, digest__carrier__isnull=True)
    return Delivery.objects.exclude(is_lost).filter(
        Q(status=DeliveryStatus.SENT) & ~Exists(evidence)
        | Q(status__in=UNSENT_DELIVERY, notified_at__isnull=False)
    )


def _jobs(row: Delivery) -> set[int]:
    """Return the jobs of all deliveries in one message with the row."""
    return set(lifecycle.same_message(row).values_list("job_id", flat=True))


def _reason(error: Failure | DependencyUnavailable) -> str:
    if isinstance(error, DependencyUnavailable):
        return f"waiting for {error.dependency}"
    return str(error.error_class)


def audit_sample(providers: Mapping[str, Provider], size: int) -> Counter[Evidence]:
    """Look up a random sample of up to `size` sent deliveries; return the count of each answer.

    Finds what rows cannot show: that the evidence itself is wrong. It raises an alert and leaves the row
    as it is: an accepted message that is absent now may have been deleted, and is not sent again.
    """
    answers: Counter[Evidence] = Counter()
    unavailable: set[str] = set()
    picked = [row["id"] for row in prepared.rows(_PICK, {"size": size})]
    rows = Delivery.objects.filter(pk__in=picked, status=DeliveryStatus.SENT).exclude(
        Q(payload={}) | Q(digest__token__isnull=False, digest__payload={})  # their lifetime has ended
    )
    for row in rows.annotate(now=Now()).select_related("digest"):
        channel, address = split(row.recipient)
        provider = providers.get(channel)
        if provider is None or channel in unavailable or is_elsewhere(row, provider):
            continue
        if not _is_conclusive(row, capabilities_for(provider, address)):
            continue
        try:
            with gate.guarded(dependency_of(row.recipient, provider, looking=True)), one_call():
                answer = provider.look_up(_question(row))
        except (Failure, DependencyUnavailable) as error:
            unavailable.add(channel)
            log.warning("delivery_sample_stopped", channel=channel, reason=type(error).__name__)
            continue
        answers[answer.evidence] += 1
        if answer.evidence is Evidence.ABSENT:
            store.record_lookup(
                lifecycle.carrier_of(row), Evidence.ABSENT, "looked up in a sample of sent deliveries"
            )
            log.error("delivery_sample_absent", delivery=row.pk, job=row.job_id, provider=provider.name)
    return answers


def _is_conclusive(row: Delivery, capabilities: Capabilities) -> bool:
    """Return whether the provider's "absent" would justify an alert."""
    if capabilities.recipients_delete or not uncertainty_policy.can_look_up(
        capabilities, has_provider_id=True
    ):
        return False
    assert row.notified_at is not None
    age: float = (row.now - row.notified_at).total_seconds()  # type: ignore[attr-defined]
    settle_seconds = capabilities.settle_seconds + capabilities.looks * capabilities.look_spacing_seconds
    return outbox.scaled(settle_seconds) <= age < capabilities.retention_seconds


def _question(row: Delivery) -> Question:
    sent = DeliveryAttempt.objects.filter(delivery_id=lifecycle.carrier_id(row)).order_by("id").first()
    started = sent.started_at if sent else row.created_at
    return Question(snapshot.thaw(row), row.notification_id, started.timestamp())
