"""Subscriptions and recipients' preferences in the admin: with a reason, and with a history."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from criticizer.admin import ReadOnlyAdmin, one_of, titled
from notifications import preferences
from notifications.models import RecipientPreference
from notifications.recipients import normalise
from reviews.audience.subscriptions import check_pattern
from reviews.audit import PreferenceEvent, SubscriptionEvent, history_of
from reviews.console.audited import AuditedAdmin, EditsAdmin
from reviews.forms import DeletionForm, ReasonedEdit
from reviews.models import Subscription

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
    list_display = (
        titled("pattern", "pattern", "path"),
        "author",
        "reader",
        "reason",
        titled("created_at", "since"),
    )
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
        titled("pgh_created_at", "when"),
        "who",
        "what",
        titled("pattern", "pattern", "path"),
        "author",
        titled("recipient", "recipient", "path"),
        titled("owner_id", "owner's number"),
        "reason",
        "where",
    )
    search_fields = ("pattern__startswith", "recipient__exact")


class DigestForm(DeletionForm):
    """For how long the reviews of recipients are kept for one mail, and why."""

    minutes = forms.TypedChoiceField(
        choices=preferences.DigestMinutes.choices, coerce=int, label="Collect reviews for"
    )
    field_order = ("minutes", "reason")


@admin.register(RecipientPreference)
class RecipientPreferenceAdmin(ReadOnlyAdmin):
    """What recipients want. They decide it themselves; an operator may unmute and set their digest."""

    list_display = (
        titled("recipient", "recipient", "path"),
        titled("threshold", "told of"),
        titled("digest_minutes", "digest"),
        "muted_until",
        titled("actor", "changed by"),
        titled("updated_at", "changed"),
    )
    list_filter = (one_of("threshold", "threshold", RecipientPreference.Threshold.choices[1:]),)
    search_fields = ("recipient__exact",)
    search_help_text = "A recipient, exactly."
    ordering = ("recipient",)
    actions = ("unmute", "set_digest")
    fields = ("recipient", "threshold", "digest_minutes", "muted_until", "actor", "reason", "updated_at")
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
            return self._question(request, "unmute", "Unmute recipients", form, queryset)
        chosen = list(queryset.values_list("recipient", "muted_until")[:MAX_CHOSEN])
        muted = [recipient for recipient, until in chosen if until is not None and until > timezone.now()]
        for recipient in muted:
            preferences.unmute(recipient, request.user.get_username(), form.cleaned_data["reason"])
        skipped = len(chosen) - len(muted)
        text = f"{len(muted)} unmuted" + (f", {skipped} skipped: not muted" if skipped else "") + "."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
        return None

    @admin.action(description="Set the digest\u2026", permissions=["unmute"])
    def set_digest(
        self, request: HttpRequest, queryset: QuerySet[RecipientPreference]
    ) -> TemplateResponse | None:
        """Ask for how long and why, then keep the chosen recipients' reviews for one mail, or no more."""
        form = DigestForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            return self._question(request, "set_digest", "Set the digest of recipients", form, queryset)
        done, skipped = 0, set()
        for recipient in queryset.values_list("recipient", flat=True)[:MAX_CHOSEN]:
            try:
                preferences.set_digest(
                    recipient,
                    form.cleaned_data["minutes"],
                    request.user.get_username(),
                    form.cleaned_data["reason"],
                )
                done += 1
            except ValueError as error:
                skipped.add(f"{recipient}: {error}")
        text = " ".join([f"{done} set.", *sorted(skipped)])
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
        return None

    def _question(
        self,
        request: HttpRequest,
        action: str,
        title: str,
        form: forms.Form,
        queryset: QuerySet[RecipientPreference],
    ) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "form": form,
            "asked": action,
            "chosen": queryset[:MAX_CHOSEN],
        }
        return TemplateResponse(request, "admin/notifications/recipientpreference/confirm.html", context)


@admin.register(PreferenceEvent)
class PreferenceEditAdmin(EditsAdmin):
    """Every edit of what recipients want."""

    list_display = (
        titled("pgh_created_at", "when"),
        titled("actor", "who"),
        "what",
        titled("recipient", "recipient", "path"),
        titled("threshold", "told of"),
        titled("digest_minutes", "digest"),
        "muted_until",
        "reason",
        "where",
    )
    search_fields = ("recipient__exact",)
