"""Subscriptions and recipients' preferences in the admin: with a reason, and with a history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, list_column
from criticizer.admin_site.bulk_actions import (
    AdminForm,
    BulkAction,
    ConfirmedActionsMixin,
    for_each,
    reason_field,
)
from criticizer.admin_site.timestamps import time_ago
from criticizer.admin_site.viewing_scope import not_of_reviews
from notifications.models import RecipientPreference
from notifications.preferences import policy
from notifications.recipients import normalise
from reviews.admin.audited import AuditedAdmin, HistoryMixin, register_audited
from reviews.models import Subscription
from reviews.recipients.subscriptions import check_pattern
from reviews.web.forms import ReasonedEdit, accepted


class SubscriptionForm(ReasonedEdit[Subscription]):
    """A recipient and the changes to notify it of, with the reason for this edit."""

    class Meta:
        model = Subscription
        fields = ("recipient", "pattern", "author", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"recipient", "reason"} & set(self.fields):  # none for those who only read
            self.fields[name].required = True

    def clean_recipient(self) -> str:
        return accepted(normalise, self.cleaned_data["recipient"])

    def clean_pattern(self) -> str:
        return accepted(check_pattern, self.cleaned_data["pattern"])


@register_audited(
    Subscription,
    list_column("pattern", "pattern", "path"),
    "author",
    list_column("recipient", "recipient", "path"),
    list_column("owner_id", "owner's number"),
    search="pattern__startswith recipient__exact",
)
class SubscriptionAdmin(AuditedAdmin):
    """Subscriptions. Those that users made on their own page are read-only here."""

    scope = not_of_reviews("who is notified of which paths")
    empty_text = (
        "No subscription yet. People add their own under My notifications; add one here for a "
        "team or a webhook."
    )
    form = SubscriptionForm
    list_display = (
        list_column("pattern", "pattern", "path"),
        "author",
        "reader",
        "reason",
        list_column("created_at", "since"),
    )
    list_select_related = ("owner",)
    search_fields = ("pattern__startswith", "recipient__exact", "owner__username__exact")
    search_help_text = "The beginning of a pattern; a recipient or an account, exactly."
    ordering = ("pattern", "id")

    @admin.display(description="recipient")
    def reader(self, subscription: Subscription) -> str:
        if subscription.owner is not None:
            return f"{subscription.owner.get_username()} (own page)"
        return subscription.recipient

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_own = isinstance(obj, Subscription) and obj.owner_id is not None
        return super().has_change_permission(request, obj) and not is_own


@admin.display(description="muted until", ordering="muted_until", empty_value="")
def muted(row: Any) -> SafeString | str:
    if row.muted_until is None:
        return ""
    return "for ever" if row.muted_until >= policy.NO_END else time_ago(row.muted_until)


class UnmuteForm(AdminForm):
    reason = reason_field(max_length=255, help_text="A ticket, an incident or a sentence.")


class DigestForm(UnmuteForm):
    minutes = forms.TypedChoiceField(
        choices=policy.DigestMinutes.choices, coerce=int, label="Collect reviews for"
    )
    field_order = ("minutes", "reason")


def _unmute(pk: int, *, actor: str, reason: str) -> str:
    row = RecipientPreference.objects.filter(pk=pk, muted_until__gt=timezone.now()).first()
    if row is None:
        return "not muted"
    policy.unmute(row.recipient, actor, reason)
    return ""


def _set_digest(pk: int, *, actor: str, reason: str, minutes: int) -> str:
    recipient = RecipientPreference.objects.values_list("recipient", flat=True).filter(pk=pk).first()
    if recipient is None:
        return "the preference does not exist any more"
    try:
        policy.set_digest(recipient, minutes, actor, reason)
    except ValueError as error:
        return f"{recipient}: {error}"
    return ""


_PERMISSION = "notifications.change_recipientpreference"
UNMUTE = BulkAction(
    "unmute",
    "Unmute",
    "Notify these recipients again? They muted Criticizer themselves, or another user did so for them: "
    "unmute them only if they want it.",
    "unmuted",
    _PERMISSION,
    UnmuteForm,
    for_each(_unmute),
)
SET_DIGEST = BulkAction(
    "set_digest",
    "Set the digest",
    "A recipient gets the reviews that end within this time in one mail. Reviews that wait already are "
    "sent as planned. Only mail has digests.",
    "set",
    _PERMISSION,
    DigestForm,
    for_each(_set_digest),
)


@register_audited(
    RecipientPreference,
    list_column("recipient", "recipient", "path"),
    list_column("threshold", "notified of"),
    list_column("digest_minutes", "digest"),
    muted,
    who=list_column("actor", "who"),
    search="recipient__exact",
)
class RecipientPreferenceAdmin(HistoryMixin, ConfirmedActionsMixin, ReadOnlyAdmin):
    """Preferences of recipients, who set them; an operator may unmute and set the digest."""

    scope = not_of_reviews("what recipients chose")
    empty_text = "No recipient has chosen anything: each is notified of every review, at once."
    nouns = ("recipient", "recipients")
    muted = staticmethod(muted)
    max_chosen = 100
    list_display = (
        list_column("recipient", "recipient", "path"),
        list_column("threshold", "notified of"),
        list_column("digest_minutes", "digest"),
        "muted",
        list_column("actor", "changed by"),
        list_column("updated_at", "changed"),
    )
    list_filter = (choice_filter("threshold", "threshold", RecipientPreference.Threshold.choices[1:]),)
    search_fields = ("recipient__exact",)
    search_help_text = "A recipient, exactly."
    ordering = ("recipient",)
    bulk_actions = (UNMUTE, SET_DIGEST)
    fields = ("recipient", "threshold", "digest_minutes", "muted", "actor", "reason", "updated_at")

    def rows_to_show(self, ids: Sequence[int]) -> Any:
        return [(row, muted(row)) for row in super().rows_to_show(ids)]
