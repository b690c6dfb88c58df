"""Every error answer of the API: `{"error", "code", "message", "details"}`."""

from __future__ import annotations

import json
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
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import Failure
from reviews.api import error_catalog as catalog
from reviews.api.error_catalog import ApiErrorKind

log = structlog.get_logger(__name__)


# Order matters where one class is the parent of another.
_KINDS: tuple[tuple[tuple[type[Exception], ...], ApiErrorKind], ...] = (
    ((exceptions.ValidationError, exceptions.ParseError, UnreadablePostError), catalog.SCHEMA_INVALID),
    ((exceptions.AuthenticationFailed, exceptions.NotAuthenticated), catalog.AUTH_DENIED),
    ((exceptions.PermissionDenied, DjangoPermissionDenied), catalog.PERMISSION_DENIED),
    ((exceptions.NotFound, Http404), catalog.NOT_FOUND),
    ((exceptions.MethodNotAllowed,), catalog.METHOD_NOT_ALLOWED),
    ((exceptions.NotAcceptable,), catalog.NOT_ACCEPTABLE),
    ((exceptions.UnsupportedMediaType,), catalog.UNSUPPORTED_MEDIA_TYPE),
    ((exceptions.Throttled,), catalog.RATE_LIMITED),
    ((RequestDataTooBig,), catalog.too_large(1024 * 1024)),  # DATA_UPLOAD_MAX_MEMORY_SIZE
    ((SuspiciousOperation,), catalog.SCHEMA_INVALID),
)


class ApiError(Exception):
    """An error answer from the catalog, with details of this request.

    Details of a refused result are a list.
    """

    def __init__(self, kind: ApiErrorKind, details: Mapping[str, Any] | list[Any] | None = None) -> None:
        super().__init__(kind.error)
        self.kind = kind
        self.details = {} if details is None else details


def handle(error: Exception, context: Mapping[str, Any]) -> Response:
    """Turn any exception of an API view into its answer (DRF's EXCEPTION_HANDLER).

    An unexpected one is a 500 without internals: the stack goes to the log only.
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
    log.error("api_failed", exc_info=error, **failure.facts)
    if isinstance(error, Failure):
        found = failure.kind
        return _answer(ApiErrorKind(500, found.error_class.value, found.code, found.message), {}, {})
    return _answer(catalog.INTERNAL_BUG, {}, {})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that no view has seen (Django's handler400).

    Such as one with a foreign Host header.
    """
    if not request.path.startswith("/api/"):
        return defaults.bad_request(request, exception)
    details = {"request": ["The request's address or headers are not valid."]}
    return JsonResponse(_body(catalog.SCHEMA_INVALID, details), status=400)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a defect outside the views (Django's handler500, which has logged it)."""
    if not request.path.startswith("/api/"):
        return defaults.server_error(request)
    return JsonResponse(_body(catalog.INTERNAL_BUG, {}), status=500)


def _body(kind: ApiErrorKind, details: Mapping[str, Any] | list[Any]) -> dict[str, Any]:
    return {"error": kind.error, "code": kind.code, "message": kind.message, "details": details}


def _answer(
    kind: ApiErrorKind, details: Mapping[str, Any] | list[Any], headers: Mapping[str, str]
) -> Response:
    return Response(_body(kind, _encodable(details)), status=kind.status, headers=dict(headers))


def _encodable(details: Any) -> Any:
    """Return details with `?` for each half of a surrogate pair.

    Details repeat names and values of the request.
    """
    return json.loads(json.dumps(details, ensure_ascii=False, default=str).encode(errors="replace"))


def _details(error: Exception) -> dict[str, Any]:
    """Return what the client may know about `error`, per field where there are fields."""
    if isinstance(error, exceptions.ValidationError):
        found = error.detail if isinstance(error.detail, dict) else {"body": error.detail}
        return {"body" if name == "non_field_errors" else name: value for name, value in found.items()}
    if isinstance(error, UnreadablePostError):
        return {"body": ["The body could not be read to its end."]}
    if isinstance(error, exceptions.APIException):
        if isinstance(error, exceptions.ParseError):
            return {"body": [str(error.detail)]}
        return {"reason": str(error)}
    return {}


def _headers(error: Exception) -> dict[str, str]:
    headers: dict[str, str] = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if isinstance(error, exceptions.Throttled):
        headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "wait", None) or 1)))
    if isinstance(error, ApiError) and error.kind.status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return headers
