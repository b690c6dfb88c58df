"""The page of a user's own subscriptions, severity threshold, digest and mute."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pghistory
from django import forms
from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from criticizer import mail
from notifications.preferences import policy
from notifications.preferences.policy import DigestMinutes, Threshold
from reviews.audit.history import origin
from reviews.models import Subscription
from reviews.recipients.outlook import outlook
from reviews.recipients.subscriptions import MAX_OWN, address_of, check_pattern
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.roles import READ
from reviews.sources.allowlist import one_file_warning
from reviews.web import feeds
from reviews.web.forms import accepted
from reviews.web.reader_page import FORM, page_for

_DAYS = (("1", "For a day"), ("7", "For a week"), ("30", "For 30 days"), ("", "Until I unmute it"))


class SubscriptionForm(forms.Form):
    """A subscription of the user."""

    pattern = forms.CharField(
        max_length=1024,
        label="Depot path",
        help_text="Such as //depot/project/... (everything below), //depot/lib/*.c or one file.",
    )
    author = forms.CharField(
        max_length=255,
        required=False,
        label="Author",
        help_text="Only changes by this author. Leave empty for every author.",
    )

    def __init__(self, *args: Any, scope: Scope, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        self._scope = scope

    def clean_pattern(self) -> str:
        return accepted(check_pattern, self.cleaned_data["pattern"], self._scope)


class RemovalForm(forms.Form):
    subscription = forms.IntegerField(min_value=1, max_value=2**63 - 1)


class MuteForm(forms.Form):
    days = forms.ChoiceField(choices=_DAYS, required=False, label="How long")


class ThresholdForm(forms.Form):
    threshold = forms.ChoiceField(choices=Threshold.choices, required=False, label="Notify me of")


class DigestForm(forms.Form):
    minutes = forms.TypedChoiceField(choices=DigestMinutes.choices, coerce=int, label="Collect reviews for")


@page_for(READ, methods=FORM)
def subscriptions(request: HttpRequest) -> HttpResponse:
    """Show and change the user's own subscriptions; no other user's are reachable here."""
    address, scope = address_of(request.user), scope_of(request.user)
    form = SubscriptionForm(scope=scope)
    if request.method == "POST":
        action, done = request.POST.get("action", ""), ""
        with pghistory.context(**origin(request)):
            if address and action == "add":
                form = SubscriptionForm(request.POST, scope=scope)
                done = _add(request, form)
            elif action in _ACTIONS and (address or action == "reset_feeds"):
                form_class, act = _ACTIONS[action]
                chosen = form_class(request.POST)
                done = act(request, address, chosen.cleaned_data) if chosen.is_valid() else ""
        if done:
            messages.success(request, done)
            return HttpResponseRedirect(reverse("reviews:subscriptions"))
        if not form.is_bound:
            return HttpResponseBadRequest("Unknown action.\n", content_type="text/plain")
    own = list(Subscription.objects.filter(owner=request.user.pk).order_by("pattern", "author"))
    preference = policy.preference_of(address) if address else None
    found = outlook(address, preference, own, scope) if preference else None
    context = {
        "form": form,
        "address": address.partition(":")[2],
        "preference": preference,
        "outlook": found,
        "is_written_to_folder": mail.provider() == mail.MAILDIR,
        "rows": [(row, found.matches.get(row.pk, 0)) for row in own] if found else (),
        "threshold_form": ThresholdForm(
            initial={"threshold": preference.threshold if preference else ""}, label_suffix=""
        ),
        "digest_form": DigestForm(
            initial={"minutes": preference.digest_minutes if preference else 0}, label_suffix=""
        ),
        "mute_form": MuteForm(initial={"days": "7"}, label_suffix=""),
        "max_own": MAX_OWN,
    }
    return render(request, "reviews/subscriptions.html", context)


def _add(request: HttpRequest, form: SubscriptionForm) -> str:
    if not form.is_valid():
        return ""
    if Subscription.objects.filter(owner=request.user.pk).count() >= MAX_OWN:
        form.add_error(None, f"You have {MAX_OWN} subscriptions, the maximum. Remove one first.")
        return ""
    try:
        with transaction.atomic():
            Subscription.objects.create(owner_id=request.user.pk, **form.cleaned_data)
    except IntegrityError:
        form.add_error("pattern", "You have this subscription already.")
        return ""
    pattern = form.cleaned_data["pattern"]
    return f"Subscribed to {pattern}. {one_file_warning(pattern)}".strip()


def _remove(request: HttpRequest, address: str, chosen: dict[str, Any]) -> str:
    found = Subscription.objects.filter(owner=request.user.pk, pk=chosen["subscription"]).first()
    if found is None:
        return ""
    found.delete()
    return f"Unsubscribed from {found.pattern}."


def _mute(request: HttpRequest, address: str, chosen: dict[str, Any]) -> str:
    days = chosen["days"]
    until = timezone.now() + timedelta(days=int(days)) if days else None
    policy.mute(address, until, request.user.get_username())
    return f"Muted {dict(_DAYS)[days].lower().replace('until i', 'until you')}."


def _unmute(request: HttpRequest, address: str, chosen: dict[str, Any]) -> str:
    policy.unmute(address, request.user.get_username())
    return "Unmuted: you are notified of reviews again."


def _threshold(request: HttpRequest, address: str, chosen: dict[str, Any]) -> str:
    policy.set_threshold(address, chosen["threshold"], request.user.get_username())
    return f"You are now notified of: {Threshold(chosen['threshold']).label.lower()}."


def _digest(request: HttpRequest, address: str, chosen: dict[str, Any]) -> str:
    minutes = chosen["minutes"]
    policy.set_digest(address, minutes, request.user.get_username())
    if not minutes:
        return "Each review comes in a mail of its own from now on."
    return f"Reviews within {DigestMinutes(minutes).label.lower()} come in one mail from now on."


def _reset_feeds(request: HttpRequest, address: str, chosen: dict[str, Any]) -> str:
    feeds.reset(request.user)
    return "Your feed links are closed. Copy new ones from the lists."


# The forms are valid when an action runs; "" means that nothing was changed.
_ACTIONS: dict[str, tuple[type[forms.Form], Callable[[HttpRequest, str, dict[str, Any]], str]]] = {
    "remove": (RemovalForm, _remove),
    "mute": (MuteForm, _mute),
    "unmute": (forms.Form, _unmute),
    "threshold": (ThresholdForm, _threshold),
    "digest": (DigestForm, _digest),
    "reset_feeds": (forms.Form, _reset_feeds),
}
