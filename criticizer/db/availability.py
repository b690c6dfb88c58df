"""Middleware that answers 503 while the database is away.

A page that reads no row would look like a working service, so every request checks the database
first. `/livez`, `/readyz` and static files are answered before this.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponseBase
from django.views.defaults import page_not_found

from criticizer.db import reconnect
from criticizer.observability.health import unavailable_response

# So long after a loss every request checks, also those that would notice by themselves.
_CHECK_ALL_SECONDS = 30.0


class DatabaseMiddleware:
    """Answers 503 with Retry-After while the database is away; reconnects when it is back."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info != "/metrics" and not _notices_by_itself(request):
            try:
                # Once per request; the session would do the same right after.
                connection.close_if_health_check_failed()
                connection.ensure_connection()
            except (OperationalError, InterfaceError) as error:
                return unavailable_response(request, error)
        return self.get_response(request)


def _notices_by_itself(request: HttpRequest) -> bool:
    """Say whether the request reads a row first anyway: an API key is looked up."""
    return (
        reconnect.seconds_since_loss() > _CHECK_ALL_SECONDS
        and "HTTP_AUTHORIZATION" in request.META
        and request.path_info.startswith("/api/v1/")
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the page of a wrong address; 503 where the database was lost, as the page names its reader."""
    try:
        return page_not_found(request, exception)
    except (OperationalError, InterfaceError) as error:
        return unavailable_response(request, error)
