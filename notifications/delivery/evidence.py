"""What a delivery's rows say of it: read for decisions, never written here."""

from __future__ import annotations

from django.db.models.functions import Now
from django.utils import timezone

from notifications.delivery.uncertainty_policy import DeliveryHistory, LookupResult
from notifications.models import Delivery
from notifications.providers.base import Evidence
from notifications.states import DOUBTFUL, SendOutcome

_LOOKS = {SendOutcome.ABSENT: Evidence.ABSENT, SendOutcome.UNKNOWN: Evidence.UNKNOWN}


def facts(row: Delivery) -> DeliveryHistory:
    """Return what the row and its attempts say, for `choices.next_step`. One statement."""
    history = list(
        row.attempt_rows.order_by("id")
        .annotate(now=Now())
        .values_list("outcome", "started_at", "finished_at", "now")
    )
    first = last = since = None
    looks: list[LookupResult] = []
    resends = 0
    for outcome, started_at, finished_at, _ in history:
        if outcome in {SendOutcome.RELEASED, SendOutcome.CONFIRMED}:
            first, looks, resends = None, [], 0
        elif outcome in _LOOKS:
            looks.append(LookupResult(_LOOKS[SendOutcome(outcome)], (finished_at or started_at).timestamp()))
        elif outcome in DOUBTFUL:
            resends += any(look.evidence is Evidence.ABSENT for look in looks)
            looks = []
            first = first or started_at
            last, since = started_at, finished_at or started_at
    # Without any attempt the row's own times stand in: it was made, then somebody doubted it.
    now = history[-1][-1] if history else timezone.now()
    return DeliveryHistory(
        now=now.timestamp(),
        first_attempt_at=(first or row.created_at).timestamp(),
        last_attempt_at=(last or row.created_at).timestamp(),
        doubtful_since=(since or row.updated_at).timestamp(),
        knows_id=bool(row.notification_id),
        looks=tuple(looks),
        resends=resends,
    )
