"""Admin of deliveries: read-only, with the operators' decision about uncertain ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from criticizer.admin_site.base import list_column, state_column
from criticizer.admin_site.bulk_actions import (
    ActionResult,
    AdminForm,
    BulkAction,
    ConfirmedActionsMixin,
    reason_field,
)
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, age, exact, number
from criticizer.admin_site.viewing_scope import RowScope, Visible
from criticizer.resilience.failures import ErrorClass
from notifications.delivery import operator_actions
from notifications.delivery.operator_actions import OperatorAction
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.recipients import HOST_CHANNELS, example_pull_request
from notifications.states import DeliveryStatus

_CHOICES = (
    (OperatorAction.CONFIRM.value, "It arrived: confirm it as delivered"),
    (OperatorAction.RESEND.value, "Send it again: it may arrive twice, and the message says so"),
    (OperatorAction.ABANDON.value, "Abandon it: the review continues without this recipient"),
)
MAX_ATTEMPTS = 200


def _recipient(channel: str, example: str) -> Key:
    # A recipient such as `mail:ann@example.com` is a valid search as it is.
    return Key(lambda text: Q(recipient=f"{channel}:{text}"), "The recipient", example)


class DecisionForm(AdminForm):
    decision = forms.ChoiceField(choices=_CHOICES, widget=forms.RadioSelect, label="Action")
    reason = reason_field(
        max_length=1000,
        label="Evidence or reason",
        help_text="For a confirmation, the evidence that it arrived: who saw it, a line of the mail"
        " server's log, a ticket. It is saved with the delivery and the review.",
    )


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
    orderings = {
        "newest": Ordering("Newest", ("-created_at", "-id")),
        "oldest": Ordering("Oldest", ("created_at", "id")),
    }
    search_keys = {
        "cl": exact("changelist_id", "The changelist", example="12345"),
        "state": exact("status", "The state; several with commas", choices=DeliveryStatus),
        "mail": _recipient("mail", "ann@example.com"),
        "slack": _recipient("slack", "C0123ABCD"),
        "swarm": _recipient("swarm", "review-123"),
        **{channel: _recipient(channel, example_pull_request(channel)) for channel in HOST_CHANNELS},
        "webhook": _recipient("webhook", "https://ci.example.com/hook"),
        "id": exact("notification_id", "The provider's own id", example="msg-1"),
        "provider": exact("provider", "The provider", example="smtp"),
        "error": exact("error_class", "The error class", choices=ErrorClass),
        "version": number("review_version", "The version of the review", example=">1"),
        "attempts": number("attempts", "The number of attempts", example=">1"),
        "age": age("created_at", "How long ago it was created", example="<1d"),
    }
    starting_views = {
        "Uncertain": "q=state%3Auncertain",
        "Not sent yet": "q=state%3Apending%2Csending%2Creconciling",
        "Failed": "q=state%3Afailed",
    }
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
