"""The login page: operators go on to what needs them, everybody else to the reviews."""

from __future__ import annotations

from django.contrib.auth.views import LoginView
from django.http import HttpRequest
from django.urls import reverse


class Login(LoginView):
    """Django's login; a page that was asked for comes first, except the front page."""

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        wanted = super().get_redirect_url()
        return "" if wanted == reverse("reviews:list") else wanted

    def get_default_redirect_url(self) -> str:
        user = self.request.user
        if user.is_active and user.is_staff and user.has_perm("deadletters.view_deadlettergroup"):
            return reverse("admin:index")
        return super().get_default_redirect_url()
