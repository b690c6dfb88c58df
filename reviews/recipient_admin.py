"""Subscriptions and recipients' preferences in the admin: with a reason, and with a history."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from criticizer.admin import ReadOnlyAdmin, one_of
from notifications import preferences
from notifications.models import RecipientPreference
from notifications.recipients import normalise
from reviews.audit import PreferenceEvent, SubscriptionEvent, history_of
from reviews.audited_admin import AuditedAdmin, EditsAdmin
from reviews.forms import DeletionForm, ReasonedEdit
from reviews.models import Subscription
from reviews.subscriptions import check_pattern

MAX_CHOSEN = 100


class SubscriptionForm(ReasonedEdit[Subscription]):
    """Whom an administrator wants told of which changes, with the reason for this edit."""

    class Meta:
        model = Subscription
        fields = ("recipient", "pattern", "author", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"recipient", "reason"} & set(self.fields):  # none for those who only read
            self.fields[name].required = True

    def clean_recipient(self) -> str:
        try:
            return normalise(self.cleaned_data["recipient"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def clean_pattern(self) -> str:
        try:
            return check_pattern(self.cleaned_data["pattern"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


@admin.register(Subscription)
class SubscriptionAdmin(AuditedAdmin):
    """Who is told of which changes. Those that people keep on their own page are theirs to change."""

    events = SubscriptionEvent
    form = SubscriptionForm
    list_display = ("pattern", "author", "reader", "reason", "created_at")
    list_select_related = ("owner",)
    search_fields = ("pattern__startswith", "recipient__exact", "owner__username__exact")
    search_help_text = "The beginning of a pattern; a recipient or an account, exactly."
    ordering = ("pattern", "id")
    delete_confirmation_template = "admin/reviews/subscription/delete_confirmation.html"

    @admin.display(description="told to")
    def reader(self, subscription: Subscription) -> str:
        if subscription.owner is not None:
            return f"{subscription.owner.get_username()} (own page)"
        return subscription.recipient

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_own = isinstance(obj, Subscription) and obj.owner_id is not None
        return super().has_change_permission(request, obj) and not is_own


@admin.register(SubscriptionEvent)
class SubscriptionEditAdmin(EditsAdmin):
    """Every edit of the subscriptions, deleted ones included."""

    list_display = (
        "pgh_created_at", "who", "what", "pattern", "author", "recipient", "owner_id", "reason", "where",
    )  # fmt: skip
    search_fields = ("pattern__startswith", "recipient__exact")


@admin.register(RecipientPreference)
class RecipientPreferenceAdmin(ReadOnlyAdmin):
    """What recipients want. They decide it themselves; an operator may unmute."""

    list_display = ("recipient", "threshold", "muted_until", "actor", "updated_at")
    list_filter = (one_of("threshold", "threshold", RecipientPreference.Threshold.choices[1:]),)
    search_fields = ("recipient__exact",)
    search_help_text = "A recipient, exactly."
    ordering = ("recipient",)
    actions = ("unmute",)
    fields = ("recipient", "threshold", "muted_until", "actor", "reason", "updated_at")
    object_history_template = "admin/reviews/allowlistentry/object_history.html"

    def has_unmute_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("notifications.change_recipientpreference"))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        edits = history_of(int(object_id), PreferenceEvent) if object_id.isdecimal() else []
        return super().history_view(request, object_id, {"edits": edits, **(extra_context or {})})

    @admin.action(description="Unmute\u2026", permissions=["unmute"])
    def unmute(
        self, request: HttpRequest, queryset: QuerySet[RecipientPreference]
    ) -> TemplateResponse | None:
        """Ask why, then tell the chosen recipients again."""
        form = DeletionForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            context = {
                **self.admin_site.each_context(request),
                "title": "Unmute recipients",
                "opts": self.opts,
                "form": form,
                "chosen": queryset[:MAX_CHOSEN],
            }
            return TemplateResponse(request, "admin/notifications/recipientpreference/confirm.html", context)
        chosen = list(queryset.values_list("recipient", "muted_until")[:MAX_CHOSEN])
        muted = [recipient for recipient, until in chosen if until is not None and until > timezone.now()]
        for recipient in muted:
            preferences.unmute(recipient, request.user.get_username(), form.cleaned_data["reason"])
        skipped = len(chosen) - len(muted)
        text = f"{len(muted)} unmuted" + (f", {skipped} skipped: not muted" if skipped else "") + "."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
        return None


@admin.register(PreferenceEvent)
class PreferenceEditAdmin(EditsAdmin):
    """Every edit of what recipients want."""

    list_display = (
        "pgh_created_at", "actor", "what", "recipient", "threshold", "muted_until", "reason", "where",
    )  # fmt: skip
    search_fields = ("recipient__exact",)
