"""Nothing is served without the database (specification 002, 3.2).

A page that happens to need no row would look like a working service, so every request is asked
about the database first. Probes and static files are answered before this.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponseBase

from criticizer.db import reconnect
from criticizer.observability.health import unavailable_response

# After a loss every request looks, those too that would notice by themselves.
_SUSPICIOUS_SECONDS = 30.0


class DatabaseMiddleware:
    """Answer 503 with Retry-After while the database is away; connect again when it is back."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info != "/metrics" and not _notices_by_itself(request):
            try:
                # Once a request, whoever asks first: the session would do the same right after.
                connection.close_if_health_check_failed()
                connection.ensure_connection()
            except (OperationalError, InterfaceError) as error:
                return unavailable_response(request, error)
        return self.get_response(request)


def _notices_by_itself(request: HttpRequest) -> bool:
    """Say whether the request's first step reads a row anyway: a key of the API is looked up."""
    return (
        reconnect.seconds_since_loss() > _SUSPICIOUS_SECONDS
        and "HTTP_AUTHORIZATION" in request.META
        and request.path_info.startswith("/api/v1/")
    )
