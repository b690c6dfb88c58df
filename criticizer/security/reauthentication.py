"""Re-authentication: dangerous actions need a password that was entered recently.

`settings.REAUTH_VIEWS` lists the dangerous views and the requests that need it: "any", "post" (for
pages that many people read), or "answer", the submitted confirmation page of a bulk action (see
`criticizer.admin_site.bulk_actions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AdminPasswordChangeForm, PasswordChangeForm
from django.contrib.auth.signals import user_logged_in
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from criticizer.models import SecurityEvent
from criticizer.security.client_ip import client_ip

log = structlog.get_logger(__name__)

MAX_AGE_SECONDS = 15 * 60
_KEY = "password_at"
_TURNED_AWAY = "turned_away_from"
REFUSED = "This is not the password of this account."
_SAFE = {"GET", "HEAD", "OPTIONS"}


class PasswordForm(forms.Form):
    password = forms.CharField(
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )


def is_recent(request: HttpRequest) -> bool:
    """Return whether the password was entered in this session in the last 15 minutes."""
    given = request.session.get(_KEY)
    return isinstance(given, (int, float)) and 0 <= time.time() - given <= MAX_AGE_SECONDS


def password_notice(request: HttpRequest, view: str, back: str) -> dict[str, Any]:
    """Return the context for a notice in place of a form that `view` would refuse.

    `needs_password` is whether it would; `reauth_address` is the password page that leads back to `back`.
    """
    return {
        "needs_password": view in settings.REAUTH_VIEWS and not is_recent(request),
        "reauth_address": _password_address(back),
    }


def _password_address(target: str) -> str:
    return reverse("reauth", query={"next": target})


def note_password(request: HttpRequest) -> None:
    """Record in the session that the password was entered now."""
    request.session[_KEY] = time.time()


def _after_login(sender: object, request: HttpRequest | None = None, **_: object) -> None:
    # Every login sends this signal, the admin's own form and the test client included.
    if request is not None and hasattr(request, "session"):
        note_password(request)


user_logged_in.connect(_after_login, dispatch_uid="criticizer.security.reauthentication")


class ReauthMiddleware:
    """Middleware that redirects from a dangerous view to the password page.

    It does so when the password was not entered recently.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> HttpResponse | None:
        match = request.resolver_match
        when = settings.REAUTH_VIEWS.get(match.view_name) if match else None
        if when is None or not _is_dangerous(request, when):
            return None
        if not request.user.is_authenticated or is_recent(request):
            return None
        if request.method not in _SAFE:
            request.session[_TURNED_AWAY] = request.get_full_path()
        return HttpResponseRedirect(_password_address(request.get_full_path()))


def _is_dangerous(request: HttpRequest, when: str) -> bool:
    if when == "any":
        return True
    if request.method in _SAFE:
        return False
    return when != "answer" or "selection" in request.POST


@sensitive_post_parameters("password")
@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def confirm_password(request: HttpRequest) -> HttpResponse:
    """Ask for the password, then redirect to the requested page; the action is not performed."""
    target = _target(request)
    form = PasswordForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        if is_own_password(request, form.cleaned_data["password"]):
            request.session.cycle_key()
            note_password(request)
            if request.session.pop(_TURNED_AWAY, "") == target:
                text = "Password confirmed. Your action was not performed; please submit it again."
                messages.warning(request, text)
            return HttpResponseRedirect(target)
        form.add_error("password", REFUSED)
    return render(request, "registration/confirm_password.html", {"form": form, "next": target})


def is_own_password(request: HttpRequest, password: str) -> bool:
    """Return whether this is the account's password.

    It is throttled like a login; a wrong password is recorded as a security event.
    """
    name = request.user.get_username()
    found = authenticate(request, username=name, password=password)
    if found is not None and found.pk == request.user.pk:
        return True
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.PASSWORD_REFUSED,
        actor=name[:255],
        reason="password asked for again",
        context={"address": client_ip(request)[:64]},
    )
    log.warning("security_event", kind=SecurityEvent.Kind.PASSWORD_REFUSED.value)
    return False


class PasswordAloneMixin:
    """Mixin of forms that set a password and save no other field of the account (G578).

    The account is read before the new password is hashed, which takes long. If every field were saved, a
    right that was removed in that time would come back.
    """

    def save(self, commit: bool = True) -> Any:
        """Set the password of the account, and store that alone with `commit`."""
        user = super().save(commit=False)  # type: ignore[misc]
        if commit:
            user.save(update_fields=["password"])
        return user


class SetOtherPasswordForm(PasswordAloneMixin, AdminPasswordChangeForm):  # type: ignore[type-arg]
    """Form with which an admin sets or removes the password of an account."""


class NewPasswordForm(PasswordAloneMixin, PasswordChangeForm):
    """Form for the old password, checked under the login throttle, and twice the new one."""

    def __init__(self, *args: Any, request: HttpRequest, **options: Any) -> None:
        super().__init__(*args, **options)
        self.request = request

    def clean_old_password(self) -> str:
        password = str(self.cleaned_data["old_password"])
        if not is_own_password(self.request, password):
            raise forms.ValidationError(REFUSED)
        return password


@method_decorator(never_cache, name="dispatch")
class ChangePassword(PasswordChangeView):
    """View to change one's own password, in any role; other sessions of the account end (G222)."""

    form_class = NewPasswordForm
    template_name = "registration/change_password.html"
    success_url = reverse_lazy(settings.LOGIN_REDIRECT_URL)

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def form_valid(self, form: Any) -> HttpResponse:
        note_password(self.request)
        messages.success(
            self.request,
            "Your password is changed. Your other sessions are logged out, and your feed links are closed.",
        )
        return super().form_valid(form)


def _target(request: HttpRequest) -> str:
    wanted = str(request.POST.get("next", request.GET.get("next", "")))
    allowed = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if allowed else reverse(settings.LOGIN_REDIRECT_URL)
