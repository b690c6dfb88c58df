"""The login page: it leads operators first to what needs them now.

Others go on to what they asked for.
"""

from __future__ import annotations

from django.contrib.auth.views import LoginView
from django.http import HttpRequest
from django.urls import reverse

from reviews.dashboard.now import needs_now


class Login(LoginView):
    """Django's login. Who asked for the front page gets it, unless something needs an operator."""

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        wanted = super().get_redirect_url()
        if wanted != reverse("reviews:list") or not self._is_operator():
            return wanted
        now = needs_now(self.request.user)
        return reverse("admin:index") if now and now.needs else wanted

    def get_default_redirect_url(self) -> str:
        return reverse("admin:index") if self._is_operator() else super().get_default_redirect_url()

    def _is_operator(self) -> bool:
        user = self.request.user
        return user.is_active and user.is_staff and user.has_perm("deadletters.view_deadlettergroup")
