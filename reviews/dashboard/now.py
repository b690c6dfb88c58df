"""List of what needs an operator now, the likely cause first, each with one action (G272).

Every list is bounded and read through an index, so that the page costs the same in an outage; rows outside
the user's viewing scope and permissions are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.urls import reverse

from criticizer.admin_site.timestamps import format_utc
from criticizer.admin_site.viewing_scope import of_registered
from criticizer.db.query_limits import MAX_COUNTED, BoundedCount
from criticizer.models import Circuit
from criticizer.resilience.states import CircuitState
from criticizer.wording import plural_count
from deadletters import batches, groups
from deadletters.batches.cause_fixed import QUICK
from deadletters.categories import suggested_category
from deadletters.models import DeadLetterGroup, LetterEdit, ReplayBatch
from deadletters.states import BatchStatus, EditStatus
from notifications.models import Delivery
from notifications.states import DeliveryStatus
from reviews.dashboard.trends import list_address
from reviews.dashboard.waiting import waiting_for
from reviews.models import SourcePosition

SHOWN = 8  # of each kind
_TEXT = 300  # characters of a cause


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that needs a person.

    `look` is danger or warn, `action` the text of its one button.
    """

    look: str
    kind: str
    title: str
    text: str
    href: str
    action: str
    since: datetime | None = None
    waits: str = ""


@dataclass(frozen=True, slots=True)
class NeedsNow:
    """Things that need a user now, and links to further ones.

    `more` has (text, address) of each kind of which there are further ones.
    """

    needs: list[Need]
    more: list[tuple[str, str]]


def needs_now(user: Any) -> NeedsNow | None:
    """Return what needs this user now, or None for one who may see none of the kinds."""
    kinds = [kind for kind in _KINDS if user.has_perm(kind.permission)]
    if not kinds:
        return None
    needs: list[Need] = []
    more = []
    for kind in kinds:
        found = list(kind.find(user))
        needs += found[:SHOWN]
        if len(found) > SHOWN:
            more.append((f"More {kind.plural}", list_address(kind.table, kind.search)))
    return NeedsNow(needs, more)


def _some(rows: QuerySet[Any]) -> list[Any]:
    return list(rows[: SHOWN + 1])


def _circuits(user: Any) -> Iterator[Need]:
    calm = (CircuitState.CLOSED, CircuitState.FORCED_CLOSED)
    found = _some(of_registered(Circuit, user).exclude(state__in=calm).order_by("changed_at"))
    waiting = waiting_for([circuit.name for circuit in found]) if found else {}
    for circuit in found:
        number, deadline = waiting.get(circuit.name, (0, None))
        until = f", the first until {format_utc(deadline)}" if deadline else ""
        yield Need(
            "danger" if circuit.state != CircuitState.HALF_OPEN else "warn",
            f"Dependency {circuit.get_state_display().lower()}",
            circuit.name,
            circuit.why[:_TEXT],
            reverse("admin:criticizer_circuit_change", args=[quote(circuit.name)]),
            "See the cause",
            circuit.changed_at,
            f"{number} waiting{until}" if number else "nothing waits",
        )


def _groups(user: Any) -> Iterator[Need]:
    rows = of_registered(DeadLetterGroup, user).filter(groups.ATTENTION, open_count__gt=0)
    found = _some(rows.order_by("-last_seen", "-id"))
    words = groups.newest_words([group.pk for group in found])
    for group in found:
        is_quick = suggested_category(group.error_class) in QUICK
        owner = f", looked after by {group.owner}" if group.owner else ""
        yield Need(
            "danger",
            "Failure group",
            f"{group.error_class} in stage {group.stage}",
            (words.get(group.pk) or group.normalized_message)[:_TEXT],
            reverse("admin:deadletters_deadlettergroup_change", args=[group.pk]),
            "Replay when fixed" if is_quick else "Work on it",
            group.first_seen,
            f"{plural_count(group.open_count, 'dead letter')} open{owner}",
        )


def _batches(user: Any) -> Iterator[Need]:
    statuses = (BatchStatus.AWAITING, BatchStatus.STOPPED, BatchStatus.PAUSED)
    for batch in _some(of_registered(ReplayBatch, user).filter(status__in=statuses).order_by("id")):
        is_awaiting = batch.status == BatchStatus.AWAITING
        may = is_awaiting and user.has_perm("deadletters.approve_replaybatch")
        may = may and not batches.why_not_approve(batch, user.get_username())
        view = "approve" if may else "change"
        yield Need(
            "warn",
            "Waits for approval" if is_awaiting else f"Replay {batch.get_status_display().lower()}",
            f"Batch {batch.pk}: {plural_count(batch.item_count, 'dead letter')}",
            (batch.reason if is_awaiting else batch.status_reason or batch.reason)[:_TEXT],
            reverse(f"admin:deadletters_replaybatch_{view}", args=[batch.pk]),
            "Approve" if may else "Open the batch",
            batch.requested_at,
            f"requested by {batch.requested_by}",
        )


def _edits(user: Any) -> Iterator[Need]:
    rows = of_registered(LetterEdit, user).filter(status=EditStatus.REQUESTED).order_by("id")
    for edit in _some(rows):
        may = user.has_perm("deadletters.approve_letteredit") and edit.requested_by != user.get_username()
        yield Need(
            "warn",
            "Waits for approval",
            f"Edit of dead letter {edit.letter_id}",
            edit.reason[:_TEXT],
            reverse("admin:deadletters_letteredit_change", args=[edit.pk]),
            "Decide" if may else "Open the edit",
            edit.requested_at,
            f"requested by {edit.requested_by}",
        )


def _uncertain(user: Any) -> Iterator[Need]:
    rows = of_registered(Delivery, user).filter(status=DeliveryStatus.UNCERTAIN)
    oldest = rows.order_by("created_at", "id").values_list("created_at", flat=True).first()
    if oldest is None:
        return
    number = BoundedCount.up_to(rows.order_by()[: MAX_COUNTED + 1].count())
    yield Need(
        "warn",
        "Uncertain deliveries",
        f"{plural_count(number, 'message')} may or may not have arrived",
        "No evidence shows it. Decide whether each is confirmed, sent again or given up: its review waits.",
        list_address("notifications_delivery", "state:uncertain"),
        "Decide",
        oldest,
    )


def _polls(user: Any) -> Iterator[Need]:
    for position in _some(of_registered(SourcePosition, user).exclude(problem="").order_by("stream")):
        yield Need(
            "danger",
            "Poll fails",
            position.stream,
            position.problem[:_TEXT],
            reverse("admin:reviews_sourceposition_change", args=[position.pk]),
            "See the source",
            position.polled_at,
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    permission: str
    find: Callable[[Any], Iterator[Need]]
    plural: str
    table: str
    search: str = ""


_KINDS = (
    _Kind("criticizer.view_circuit", _circuits, "circuits", "criticizer_circuit", "-state:closed"),
    _Kind("reviews.view_sourceposition", _polls, "polls", "reviews_sourceposition"),
    _Kind("deadletters.view_deadlettergroup", _groups, "groups", "deadletters_deadlettergroup", "is:open"),
    _Kind("notifications.view_delivery", _uncertain, "deliveries", "notifications_delivery"),
    _Kind("deadletters.view_replaybatch", _batches, "batches", "deadletters_replaybatch"),
    _Kind("deadletters.view_letteredit", _edits, "edits", "deadletters_letteredit", "state:requested"),
)
