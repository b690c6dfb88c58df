"""Admin of deliveries: read-only, with the operators' decision about uncertain ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.bulk_actions import ActionResult, BulkAction, ConfirmedActionsMixin
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.viewing_scope import RowScope, Visible
from notifications.admin import (
    delivery_search,
    suppressions,  # noqa: F401  registers the suppressed addresses
)
from notifications.admin.forms import DecisionForm
from notifications.delivery import operator_actions
from notifications.delivery.operator_actions import OperatorAction
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.states import DeliveryStatus

MAX_ATTEMPTS = 200


def _shared_with(rows: Sequence[Delivery]) -> dict[int, list[Delivery]]:
    """Return row id -> the other deliveries in one message with it, sent or planned."""
    digests_of = [row.digest_id for row in rows if row.digest_id is not None]
    together: dict[tuple[int | None, str], list[Delivery]] = {}
    for one in Delivery.objects.filter(digest__in=digests_of).defer("payload").order_by("pk"):
        together.setdefault((one.digest_id, one.status), []).append(one)
    return {
        row.pk: [one for one in together.get((row.digest_id, row.status), []) if one.pk != row.pk]
        for row in rows
    }


def _of_visible_messages(visible: Visible) -> Any:
    """Return the condition on deliveries whose message tells of reviews that may all be seen."""
    hidden = Delivery.objects.filter(~visible.of_jobs("job"), digest=OuterRef("digest"))
    return visible.of_jobs("job") & ~Q(Exists(hidden))


def _decide(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    action = OperatorAction(given["decision"])
    done, notes = operator_actions.decide(ids, action, actor=actor, reason=given["reason"])
    left = len(ids) - done
    return ActionResult(done, {"the reason follows": left} if left else {}, notes=notes)


def _undoubted(ids: Sequence[int]) -> dict[int, str]:
    rows = Delivery.objects.filter(pk__in=ids).exclude(status=DeliveryStatus.UNCERTAIN)
    return dict.fromkeys(rows.values_list("pk", flat=True), "no decision is needed")


DECIDE = BulkAction(
    "decide",
    "Decide about uncertain deliveries",
    "These messages may have arrived; the provider cannot say. Before you decide, check the recipient's "
    "mailbox or channel and the log of the mail server.",
    "decided",
    "notifications.decide_delivery",
    DecisionForm,
    _decide,
    press="Decide about {what}",
    refused=_undoubted,
)


@admin.register(Delivery)
class DeliveryAdmin(ConfirmedActionsMixin, KeysetAdmin):
    scope = RowScope(_of_visible_messages)
    empty_text = "No message yet. A review makes one for each recipient as soon as its findings are stored."
    list_display = (
        list_column("changelist_id", "changelist", "path"),
        list_column("review_version", "version"),
        "state_with_error",
        list_column("recipient", "recipient", "path"),
        list_column("provider", "provider"),
        "attempts",
        list_column("notified_at", "sent"),
    )
    list_only = (
        "changelist_id", "review_version", "status", "error_class", "recipient", "provider", "attempts",
        "notified_at",
    )  # fmt: skip
    orderings = delivery_search.ORDERINGS
    search_keys = delivery_search.KEYS
    starting_views = delivery_search.VIEWS
    list_select_related = False
    bulk_actions = (DECIDE,)
    nouns = ("delivery", "deliveries")
    max_chosen = 100
    fields = readonly_fields = ("state",)  # change_form.html shows the whole delivery
    state = state_column("status")

    @admin.display(description="state")
    def state_with_error(self, row: Delivery) -> SafeString:
        word = badge(row.status, row.state_words)
        if not row.error_class:
            return word
        return format_html_fast('{}<br><span class="quiet">{}</span>', word, row.error_class)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("payload")

    def page_context(self, request: HttpRequest, row: Delivery) -> dict[str, Any]:
        return {
            "title": f"{row.changelist_id[:80]}, version {row.review_version}",
            "delivery": row,
            "history": lifecycle.carrier_of(row).attempt_rows.order_by("-id")[:MAX_ATTEMPTS],
            "shared_with": _shared_with([row])[row.pk],
            "may_decide": row.status == DeliveryStatus.UNCERTAIN and request.user.has_perm(DECIDE.permission),
            "may_read": request.user.has_perm("reviews.view_all_files"),
        }

    def rows_to_show(self, ids: Sequence[int]) -> Any:
        """Return the deliveries, each with the others in its message."""
        rows = list(super().rows_to_show(ids).defer("payload"))
        shared_with = _shared_with(rows)
        return [(row, shared_with[row.pk]) for row in rows]
