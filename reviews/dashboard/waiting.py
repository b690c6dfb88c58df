"""Work that waits for a dependency that may not be called now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Case, Count, Min, OuterRef, Subquery, When

from criticizer.models import OutboxMessage
from reviews.models import StageRun
from reviews.pipeline import AGGREGATE


def waiting_for(names: Iterable[str]) -> dict[str, tuple[int, datetime | None]]:
    """Return how much work waits for each dependency, and its reviews' first deadline."""
    deadline = StageRun.objects.filter(pk=OuterRef("aggregate_id")).values("job__deadline_at")
    found = (
        OutboxMessage.objects.filter(waiting_for__in=list(names))
        .annotate(deadline=Case(When(aggregate_type=AGGREGATE, then=Subquery(deadline[:1]))))
        .order_by()
        .values_list("waiting_for")
        .annotate(number=Count("pk"), first=Min("deadline"))
    )
    return {name: (number, first) for name, number, first in found}
