"""Every error answer of the API: `{"error", "code", "message", "details"}`.

The codes of failures inside Criticizer are those of `criticizer.failures.TABLE`; the ones
that only HTTP knows have their own rows here, from CRITICIZER_E450 on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, UnreadablePostError
from rest_framework import exceptions, status
from rest_framework.response import Response

from criticizer.failures import ErrorClass, Failure, Place, classify, kind_of
from criticizer.health import unavailable

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ApiErrorKind:
    """One row of the table: everything fixed about an error answer."""

    status: int
    error: str
    code: str
    message: str


def _from_taxonomy(http_status: int, error_class: ErrorClass) -> ApiErrorKind:
    kind = kind_of(error_class, Place.INTERNAL)
    return ApiErrorKind(http_status, error_class.value, kind.code, kind.message)


SCHEMA_INVALID = _from_taxonomy(400, ErrorClass.SCHEMA_INVALID)
INTERNAL_BUG = ApiErrorKind(
    500,
    ErrorClass.INTERNAL_BUG.value,
    kind_of(ErrorClass.INTERNAL_BUG, Place.INTERNAL).code,
    "Criticizer failed on this request. The failure is in its log.",
)
VERSION_CONFLICT = ApiErrorKind(
    409, "VERSION_CONFLICT", "CRITICIZER_E450",
    "This changelist has a newer or other version. Post a strictly higher review_version with rerun true.",
)  # fmt: skip
STATE_CONFLICT = ApiErrorKind(
    409, "STATE_CONFLICT", "CRITICIZER_E451", "The review is already final, so it cannot be changed."
)
AUTH_DENIED = ApiErrorKind(
    401, "AUTH_DENIED", "CRITICIZER_E452", "A valid API key is needed: Authorization: Bearer <key>."
)
PERMISSION_DENIED = ApiErrorKind(
    403, "PERMISSION_DENIED", "CRITICIZER_E453", "The role of this API key does not allow the request."
)
NOT_FOUND = ApiErrorKind(404, "NOT_FOUND", "CRITICIZER_E454", "There is nothing at this address.")
METHOD_NOT_ALLOWED = ApiErrorKind(
    405,
    "METHOD_NOT_ALLOWED",
    "CRITICIZER_E455",
    "This address does not know the method; see the Allow header.",
)
NOT_ACCEPTABLE = ApiErrorKind(
    406, "NOT_ACCEPTABLE", "CRITICIZER_E456", "The answer is JSON only. Accept application/json."
)
PAYLOAD_TOO_LARGE = ApiErrorKind(
    413, "PAYLOAD_TOO_LARGE", "CRITICIZER_E457", "The body is over 64 KiB."
)  # fmt: skip
UNSUPPORTED_MEDIA_TYPE = ApiErrorKind(
    415, "UNSUPPORTED_MEDIA_TYPE", "CRITICIZER_E458", "The body must be JSON: Content-Type: application/json."
)
RATE_LIMITED = ApiErrorKind(
    429,
    "RATE_LIMITED",
    "CRITICIZER_E459",
    "Too many requests with this key. Wait as Retry-After says.",
)

API_TABLE: tuple[ApiErrorKind, ...] = (
    SCHEMA_INVALID, INTERNAL_BUG, VERSION_CONFLICT, STATE_CONFLICT, AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND,
    METHOD_NOT_ALLOWED, NOT_ACCEPTABLE, PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, RATE_LIMITED,
)  # fmt: skip

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
    if isinstance(error, (OperationalError, InterfaceError)):
        body, headers = unavailable(error)
        log.warning("database_unavailable", code=body["code"], error=type(error).__name__)
        return Response(body, status=status.HTTP_503_SERVICE_UNAVAILABLE, headers=headers)
    if isinstance(error, ApiError):
        return _answer(error.kind, error.details, {})
    for types, kind in _KINDS:
        if isinstance(error, types):
            return _answer(kind, _details(error), _headers(error))
    failure = classify(error)
    log.error("api_failed", error_class=failure.error_class.value, code=failure.kind.code, exc_info=error)
    if isinstance(error, Failure):
        found = failure.kind
        return _answer(ApiErrorKind(500, found.error_class.value, found.code, found.message), {}, {})
    return _answer(INTERNAL_BUG, {}, {})


def _answer(kind: ApiErrorKind, details: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    body = {"error": kind.error, "code": kind.code, "message": kind.message, "details": details}
    return Response(body, status=kind.status, headers=dict(headers))


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
    return headers
