"""Admin of deliveries: read-only, with the operators' decision about uncertain ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.security import reauthentication
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

MAX_AT_ONCE = 100
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


@admin.register(Delivery)
class DeliveryAdmin(KeysetAdmin):
    change_form_template = "admin/notifications/delivery/change_form.html"
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
    actions = ("decide",)
    fields = readonly_fields = ("state",)  # change_form.html shows the whole delivery
    state = state_column("status")

    @admin.display(description="state")
    def state_with_error(self, row: Delivery) -> SafeString:
        word = self.state(row)
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
            "may_decide": row.status == DeliveryStatus.UNCERTAIN and self.has_decide_permission(request),
            "may_read": request.user.has_perm("reviews.view_all_files"),
        }

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("notifications.decide_delivery"))

    @admin.action(description="Decide about uncertain deliveries\u2026", permissions=["decide"])
    def decide(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> HttpResponseBase | None:
        """Show the confirmation page; on its answer, decide about exactly the deliveries it listed."""
        is_answer = "confirmed" in request.POST
        form = DecisionForm(request.POST if is_answer else None)
        chosen = (
            [int(pk) for pk in request.POST.getlist(ACTION_CHECKBOX_NAME) if pk.isdecimal()]
            if is_answer
            else list(queryset.values_list("pk", flat=True)[: MAX_AT_ONCE + 1])
        )
        rows = Delivery.objects.filter(pk__in=chosen[: MAX_AT_ONCE + 1]).defer("payload").order_by("pk")
        uncertain = [row for row in rows if row.status == DeliveryStatus.UNCERTAIN]
        if len(chosen) > MAX_AT_ONCE:
            self.message_user(request, f"Select at most {MAX_AT_ONCE} deliveries at a time.", messages.ERROR)
            return None
        if not is_answer and not uncertain:
            self.message_user(request, "None of these needs a decision.", messages.WARNING)
            return None
        if not form.is_valid():
            return self._confirmation(request, uncertain, form, skipped=len(chosen) - len(uncertain))
        done, words = operator_actions.decide(
            chosen,
            OperatorAction(form.cleaned_data["decision"]),
            actor=request.user.get_username(),
            reason=form.cleaned_data["reason"],
        )
        text = " ".join([f"{done} of {len(chosen)} decided.", *words])
        self.message_user(request, text, messages.SUCCESS if done == len(chosen) else messages.WARNING)
        return None

    def _confirmation(
        self, request: HttpRequest, rows: list[Delivery], form: DecisionForm, *, skipped: int
    ) -> TemplateResponse:
        shared_with = _shared_with(rows)
        context = {
            **self.admin_site.each_context(request),
            "title": "Decide about uncertain deliveries",
            "opts": self.opts,
            "form": form,
            "rows": rows,
            "shared": [(row, shared_with[row.pk]) for row in rows if shared_with[row.pk]],
            "skipped": skipped,
            **reauthentication.asking(
                request, "admin:notifications_delivery_changelist", request.get_full_path()
            ),
        }
        return TemplateResponse(request, "admin/notifications/delivery/confirm.html", context)
