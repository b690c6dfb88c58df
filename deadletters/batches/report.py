"""Progress of a batch, and its items as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django.db.models import Count, Min

from deadletters.models import DeadLetter, ReplayBatch, ReplayItem
from deadletters.states import BEFORE_REPLAY, ItemStatus


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a batch.

    `newer` counts open letters that joined its groups since it was drafted. `newer_groups` are their groups,
    `first_newer` the id of the first of them.
    """

    by_status: Mapping[str, int]
    left: int  # items that have no outcome yet
    done: int
    newer: int
    newer_groups: tuple[int, ...]
    first_newer: int


def progress(batch_id: int) -> Progress:
    """Return the items by status, and how many letters joined their groups since the draft."""
    batch = ReplayBatch.objects.get(pk=batch_id)
    found = dict(batch.items.order_by().values_list("status").annotate(n=Count("pk")))
    left = sum(found.get(name, 0) for name in (ItemStatus.PENDING, ItemStatus.READY, ItemStatus.REPLAYING))
    groups = batch.items.order_by().values("group_id").distinct()
    newer = DeadLetter.objects.filter(
        group_id__in=groups,
        status__in=BEFORE_REPLAY,
        created_at__gt=batch.requested_at,
        generation=1,  # an edited letter is no new failure
    )
    of_groups = newer.exclude(replay_items__batch=batch_id).order_by("group_id").values_list("group_id")
    counted = list(of_groups.annotate(count=Count("pk"), first=Min("pk")))
    return Progress(
        by_status=found,
        left=left,
        done=sum(found.values()) - left,
        newer=sum(count for _, count, _ in counted),
        newer_groups=tuple(group for group, _, _ in counted),
        first_newer=min((first for _, _, first in counted), default=0),
    )


def csv_rows(batch_id: int) -> Iterator[list[str]]:
    """Yield a header and one row an item, for `csv_export.to_csv`."""
    yield ["letter", "job", "lane", "canary", "outcome", "verdict", "detail", "started_at", "finished_at"]
    for item in ReplayItem.objects.filter(batch_id=batch_id).order_by("id").iterator(2_000):
        yield [
            str(item.letter_id),
            str(item.job_id),
            item.lane,
            "yes" if item.is_canary else "",
            item.status,
            item.verdict,
            item.detail,
            item.started_at.isoformat() if item.started_at else "",
            item.finished_at.isoformat() if item.finished_at else "",
        ]
