"""Suppressed addresses in the console: what is suppressed and why, and lifting it with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from criticizer.admin_site.base import ReadOnlyAdmin, fact, one_of, titled
from criticizer.admin_site.bulk_actions import AskingAdmin, Console, Deed, Sum, reason_field, summed
from notifications.models.suppressions import Suppression
from notifications.suppressions import reports


class LiftForm(Console):
    """Why mail may go to the addresses again."""

    reason = reason_field(
        help_text="A ticket or a sentence: the mailbox was mended, the complaint was a mistake. It is kept."
    )


def _lift(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> Sum:
    reason = given["reason"]
    return summed([(reports.lift(pk, actor=actor, reason=reason), "lifted before") for pk in ids])


LIFT = Deed(
    "lift",
    "Lift",
    "Mail goes to these addresses again. What was refused meanwhile is sent when its dead letter is "
    "replayed.",
    "lifted",
    LiftForm,
    _lift,
)


class InForce(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("force", "In force"), ("lifted", "Lifted")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(lifted_at__isnull=self.value() == "force")


@admin.register(Suppression)
class SuppressionAdmin(AskingAdmin, ReadOnlyAdmin):
    confirm_template = "admin/notifications/suppression/confirm.html"
    nouns = ("address", "addresses")
    max_chosen = 100
    list_display = (
        titled("address", "address", "path"),
        "reason",
        "provider",
        titled("created_at", "suppressed"),
        titled("lifted_at", "lifted"),
        "lifted_by",
    )
    list_filter = (InForce, one_of("reason", "reason", Suppression.Reason.choices))
    search_fields = ("address__startswith",)
    search_help_text = "The beginning of an address, in lower case."
    ordering = ("-id",)
    actions = ("lift",)
    fields = (
        fact("address", "address", "whole path"), "reason", "provider", fact("created_at", "suppressed"),
        fact("event_id", "event", "path"), fact("detail", "detail", "whole"), fact("lifted_at", "lifted"),
        "lifted_by", fact("lift_reason", "lifted because", "whole"),
    )  # fmt: skip

    def has_lift_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("notifications.lift_suppression"))

    def address_of(self, pk: int) -> str:
        return reverse("admin:notifications_suppression_change", args=[pk])

    @admin.action(description="Lift\u2026", permissions=["lift"])
    def lift(self, request: HttpRequest, queryset: QuerySet[Suppression]) -> HttpResponseBase | None:
        return self.ask(LIFT, request, queryset)
