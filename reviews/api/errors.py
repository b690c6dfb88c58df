"""Every error answer of the API: `{"error", "code", "message", "details"}`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.views import defaults
from rest_framework import exceptions, status
from rest_framework.response import Response

from criticizer.observability.health import RETRY_AFTER_SECONDS, is_database_down, unavailable
from criticizer.resilience.failures import Failure, classify
from reviews.api.error_catalog import (
    API_TABLE,
    AUTH_DENIED,
    BUSY,
    IN_DOUBT,
    INTERNAL_BUG,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    PAYLOAD_TOO_LARGE,
    PERMISSION_DENIED,
    RATE_LIMITED,
    SCHEMA_INVALID,
    STATE_CONFLICT,
    UNSUPPORTED_MEDIA_TYPE,
    VERSION_CONFLICT,
    ApiErrorKind,
)

__all__ = [
    "API_TABLE",
    "BUSY",
    "IN_DOUBT",
    "PAYLOAD_TOO_LARGE",
    "STATE_CONFLICT",
    "VERSION_CONFLICT",
    "ApiError",
    "ApiErrorKind",
    "handle",
]

log = structlog.get_logger(__name__)


# Order matters where one class is the parent of another.
_KINDS: tuple[tuple[tuple[type[Exception], ...], ApiErrorKind], ...] = (
    ((exceptions.ValidationError, exceptions.ParseError, UnreadablePostError), SCHEMA_INVALID),
    ((exceptions.AuthenticationFailed, exceptions.NotAuthenticated), AUTH_DENIED),
    ((exceptions.PermissionDenied, DjangoPermissionDenied), PERMISSION_DENIED),
    ((exceptions.NotFound, Http404), NOT_FOUND),
    ((exceptions.MethodNotAllowed,), METHOD_NOT_ALLOWED),
    ((exceptions.NotAcceptable,), NOT_ACCEPTABLE),
    ((exceptions.UnsupportedMediaType,), UNSUPPORTED_MEDIA_TYPE),
    ((exceptions.Throttled,), RATE_LIMITED),
    ((RequestDataTooBig,), PAYLOAD_TOO_LARGE),
    ((SuspiciousOperation,), SCHEMA_INVALID),
)


class ApiError(Exception):
    """An answer from the table, with details for this request."""

    def __init__(self, kind: ApiErrorKind, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(kind.error)
        self.kind = kind
        self.details = dict(details or {})


def handle(error: Exception, context: Mapping[str, Any]) -> Response:
    """Turn any exception of an API view into its answer (DRF's EXCEPTION_HANDLER).

    What nobody foresaw is a 500 without internals: the stack goes to the log only.
    """
    if is_database_down(error):
        body, headers = unavailable(error)
        log.warning("database_unavailable", code=body["code"], error=type(error).__name__)
        return Response(body, status=status.HTTP_503_SERVICE_UNAVAILABLE, headers=headers)
    if isinstance(error, ApiError):
        return _answer(error.kind, error.details, _headers(error))
    for types, kind in _KINDS:
        if isinstance(error, types):
            return _answer(kind, _details(error), _headers(error))
    failure = classify(error)
    log.error("api_failed", error_class=failure.error_class.value, code=failure.kind.code, exc_info=error)
    if isinstance(error, Failure):
        found = failure.kind
        return _answer(ApiErrorKind(500, found.error_class.value, found.code, found.message), {}, {})
    return _answer(INTERNAL_BUG, {}, {})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what no view has seen, such as a foreign Host header (Django's handler400)."""
    if not request.path.startswith("/api/"):
        return defaults.bad_request(request, exception)
    return _outside_views(SCHEMA_INVALID, {"request": ["The request's address or headers are not valid."]})


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a defect outside the views (Django's handler500, which has logged it)."""
    return (
        _outside_views(INTERNAL_BUG, {})
        if request.path.startswith("/api/")
        else defaults.server_error(request)
    )


def _outside_views(kind: ApiErrorKind, details: Mapping[str, Any]) -> JsonResponse:
    return JsonResponse(_body(kind, details), status=kind.status)


def _body(kind: ApiErrorKind, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": kind.error, "code": kind.code, "message": kind.message, "details": details}


def _answer(kind: ApiErrorKind, details: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    return Response(_body(kind, details), status=kind.status, headers=dict(headers))


def _details(error: Exception) -> dict[str, Any]:
    """Return what the client may know about `error`, per field where there are fields."""
    if isinstance(error, exceptions.ValidationError):
        found = error.detail if isinstance(error.detail, dict) else {"body": error.detail}
        return {"body" if name == "non_field_errors" else name: value for name, value in found.items()}
    if isinstance(error, UnreadablePostError):
        return {"body": ["The body could not be read to its end."]}
    if isinstance(error, exceptions.APIException):
        return (
            {"body": [str(error.detail)]}
            if isinstance(error, exceptions.ParseError)
            else {"reason": str(error)}
        )
    return {}


def _headers(error: Exception) -> dict[str, str]:
    headers: dict[str, str] = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if isinstance(error, exceptions.Throttled):
        headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "wait", None) or 1)))
    if isinstance(error, ApiError) and error.kind in (IN_DOUBT, BUSY):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return headers
