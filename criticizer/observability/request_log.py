"""The log lines of requests."""

from __future__ import annotations

from django.http import HttpRequest
from django_structlog.middlewares import RequestMiddleware


class RequestLog(RequestMiddleware):
    """Logs requests without their query strings.

    These may hold addresses, tokens and search terms.
    """

    @staticmethod
    def format_request(request: HttpRequest) -> str:
        return f"{request.method} {request.path}"
