"""Admin of suppressed addresses, with the action that lifts a suppression."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, detail_field, list_column
from criticizer.admin_site.bulk_actions import (
    AdminForm,
    BulkAction,
    ConfirmedActionsMixin,
    for_each,
    reason_field,
)
from criticizer.admin_site.viewing_scope import not_of_reviews
from notifications.models.suppressions import Suppression
from notifications.suppressions import bounces

_STATES = (("force", "In force"), ("lifted", "Lifted"))


class LiftForm(AdminForm):
    reason = reason_field(
        help_text="A ticket or a sentence: the mailbox works again, the complaint was a mistake. It is saved."
    )


def _lift(pk: int, *, actor: str, reason: str) -> str:
    return "" if bounces.lift(pk, actor=actor, reason=reason) else "lifted before"


LIFT = BulkAction(
    "lift",
    "Lift",
    "These addresses get mail again. Messages refused in the meantime are sent when their dead letters are "
    "replayed.",
    "lifted",
    "notifications.lift_suppression",
    LiftForm,
    for_each(_lift),
)


@admin.register(Suppression)
class SuppressionAdmin(ConfirmedActionsMixin, ReadOnlyAdmin):
    scope = not_of_reviews("addresses that mail services refused")
    empty_text = (
        "No address is suppressed. Addresses that bounced, complained or unsubscribed appear "
        "here, and get no mail."
    )
    nouns = ("address", "addresses")
    max_chosen = 100
    list_display = (
        list_column("address", "address", "path"),
        "reason",
        "provider",
        list_column("created_at", "suppressed"),
        list_column("lifted_at", "lifted"),
        "lifted_by",
    )
    list_filter = (
        choice_filter("state", "state", _STATES, lambda value: Q(lifted_at__isnull=value == "force")),
        choice_filter("reason", "reason", Suppression.Reason.choices),
    )
    search_fields = ("address__startswith",)
    search_help_text = "The beginning of an address, in lower case."
    ordering = ("-id",)
    bulk_actions = (LIFT,)
    fields = (
        detail_field("address", "address", "whole path"),
        "reason", "provider", detail_field("created_at", "suppressed"),
        detail_field("event_id", "event", "path"), detail_field("detail", "detail", "whole"),
        detail_field("lifted_at", "lifted"),
        "lifted_by", detail_field("lift_reason", "lifted because", "whole"),
    )  # fmt: skip
