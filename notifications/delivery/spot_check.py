"""A sample of what is marked as sent is asked about at its provider (004, 8.3).

A mark without evidence is found by `reconcile.audit_sent`, always. The sample finds what the
rows cannot say: that the evidence itself is wrong. It raises an alert and leaves the row alone:
an accepted message that is not there any more may have been deleted, and is not sent anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import structlog
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience import gate
from criticizer.resilience.failures import DependencyUnavailable, Failure
from notifications.delivery import snapshot, store, uncertainty_policy
from notifications.delivery.dependency_names import dependency_of
from notifications.delivery.reconcile import is_elsewhere
from notifications.digests import lifecycle
from notifications.models import Delivery, DeliveryAttempt
from notifications.providers.base import Capabilities, Evidence, Provider, Question, capabilities_for
from notifications.recipients import split
from notifications.states import DeliveryStatus

log = structlog.get_logger(__name__)

# Random places in the table, each answered by its primary key.
_PICK = """
WITH ends AS (SELECT min(id) AS low, max(id) AS high FROM deliveries),
places AS (SELECT low + floor(random() * (high - low + 1))::bigint AS place
             FROM ends, generate_series(1, %(size)s))
SELECT DISTINCT d.id FROM places, LATERAL (
  SELECT id FROM deliveries WHERE id >= places.place ORDER BY id LIMIT 1) d"""


def audit_sample(providers: Mapping[str, Provider], size: int) -> Counter[Evidence]:
    """Ask about up to `size` sent deliveries; return how many of them had which answer."""
    answers: Counter[Evidence] = Counter()
    away: set[str] = set()
    picked = [row["id"] for row in prepared.rows(_PICK, {"size": size})]
    rows = Delivery.objects.filter(pk__in=picked, status=DeliveryStatus.SENT)
    for row in rows.annotate(now=Now()).select_related("digest"):
        channel, address = split(row.recipient)
        provider = providers.get(channel)
        if provider is None or channel in away or is_elsewhere(row, provider):
            continue
        if not _means_something(row, capabilities_for(provider, address)):
            continue
        try:
            with gate.guarded(dependency_of(row.recipient, provider, looking=True)):
                answer = provider.look_up(_question(row))
        except (Failure, DependencyUnavailable) as error:
            away.add(channel)
            log.warning("delivery_sample_stopped", channel=channel, reason=type(error).__name__)
            continue
        answers[answer.evidence] += 1
        if answer.evidence is Evidence.ABSENT:
            store.note_look(
                lifecycle.carrier_of(row), Evidence.ABSENT, "asked about in a sample of what was sent"
            )
            log.error("delivery_sample_absent", delivery=row.pk, job=row.job_id, provider=provider.name)
    return answers


def _means_something(row: Delivery, capabilities: Capabilities) -> bool:
    """Say whether the provider's "absent" would be worth an alert."""
    if capabilities.recipients_delete or not uncertainty_policy.can_be_asked(capabilities, knows_id=True):
        return False
    assert row.notified_at is not None
    age: float = (row.now - row.notified_at).total_seconds()  # type: ignore[attr-defined]
    settle = capabilities.settle_seconds + capabilities.looks * capabilities.look_spacing_seconds
    return outbox.scaled(settle) <= age < capabilities.retention_seconds


def _question(row: Delivery) -> Question:
    sent = DeliveryAttempt.objects.filter(delivery_id=lifecycle.carrier_id(row)).order_by("id").first()
    started = sent.started_at if sent else row.created_at
    return Question(snapshot.thaw(row), row.notification_id, started.timestamp())
