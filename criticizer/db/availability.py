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

# For so long after a loss every request checks, also one that would notice the loss by itself.
_CHECK_ALL_SECONDS = 30.0


class DatabaseMiddleware:
    """Middleware that answers 503 with Retry-After while the database is away.

    It reconnects when the database is back.
    """

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
    """Return whether the request reads a row first anyway: its API key is looked up."""
    return (
        reconnect.seconds_since_loss() > _CHECK_ALL_SECONDS
        and "HTTP_AUTHORIZATION" in request.META
        and request.path_info.startswith("/api/v1/")
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the page for an unknown address, or 503 while the database is away.

    The page names the signed-in person, so it reads a row.
    """
    try:
        return page_not_found(request, exception)
    except (OperationalError, InterfaceError) as error:
        return unavailable_response(request, error)
