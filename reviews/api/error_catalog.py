"""The error answers of the API: one table of statuses, names, codes and texts (specification 002, 6.3).

The codes of failures inside Criticizer are those of `criticizer.resilience.failures.TABLE`; the ones that
only HTTP knows have rows of their own here, from CRITICIZER_E450 on.
"""

from __future__ import annotations

from dataclasses import dataclass

from criticizer.observability.health import CONFLICT, UNAVAILABLE
from criticizer.resilience.failures import Component, ErrorClass, kind_of


@dataclass(frozen=True, slots=True)
class ApiErrorKind:
    """One row of the table: everything fixed about an error answer."""

    status: int
    error: str
    code: str
    message: str


def _from_taxonomy(http_status: int, error_class: ErrorClass) -> ApiErrorKind:
    kind = kind_of(error_class, Component.INTERNAL)
    return ApiErrorKind(http_status, error_class.value, kind.code, kind.message)


SCHEMA_INVALID = _from_taxonomy(400, ErrorClass.SCHEMA_INVALID)
# Answered by `criticizer.observability.health`, which knows no API.
WRITE_CONFLICT, DATABASE_UNAVAILABLE = (
    ApiErrorKind(503, error_class.value, kind_of(error_class, Component.DATABASE).code, message)
    for error_class, message in (
        (ErrorClass.WRITE_CONFLICT, CONFLICT),
        (ErrorClass.DATABASE_UNAVAILABLE, UNAVAILABLE),
    )
)
INTERNAL_BUG = ApiErrorKind(
    500,
    ErrorClass.INTERNAL_BUG.value,
    kind_of(ErrorClass.INTERNAL_BUG, Component.INTERNAL).code,
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

IN_DOUBT = ApiErrorKind(
    503,
    ErrorClass.DATABASE_UNAVAILABLE.value,
    "CRITICIZER_E460",
    "The database was lost while the request was recorded. Post it again with the same idempotency_key.",
)
BUSY = ApiErrorKind(
    503,
    "BUSY",
    "CRITICIZER_E461",
    "Other requests for this changelist came first again and again. Post it once more.",
)

API_TABLE: tuple[ApiErrorKind, ...] = (
    SCHEMA_INVALID, INTERNAL_BUG, VERSION_CONFLICT, STATE_CONFLICT, AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND,
    METHOD_NOT_ALLOWED, NOT_ACCEPTABLE, PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, RATE_LIMITED,
    WRITE_CONFLICT, DATABASE_UNAVAILABLE, IN_DOUBT, BUSY,
)  # fmt: skip
