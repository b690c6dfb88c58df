"""Decorators of the pages for people: methods, login, permissions, and no caching."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from reviews.roles import READ

View = Callable[..., HttpResponse]
READS, FORM, POST = ("GET", "HEAD"), ("GET", "HEAD", "POST"), ("POST",)


def page_for(*permissions: str, methods: Sequence[str] = READS) -> Callable[[View], View]:
    """Return the decorator of a page for people who are logged in and have these permissions."""

    def decorate(view: View) -> View:
        permitted = permission_required(permissions, raise_exception=True)(view)
        return require_http_methods([*methods])(never_cache(login_required(permitted)))

    return decorate


reader_page = page_for(READ)
