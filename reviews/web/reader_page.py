"""The decorator of the reviewers' read-only pages."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from reviews.roles import READ


def reader_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a read-only page of reviewers: login and permission required, never cached."""
    permitted = permission_required(READ, raise_exception=True)(view)
    return require_safe(never_cache(login_required(permitted)))
