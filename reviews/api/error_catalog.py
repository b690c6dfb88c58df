"""The error answers of the API: one table of statuses, names, codes and texts.

Failures inside Criticizer keep the codes of `criticizer.resilience.failures.TABLE`; those that only HTTP
knows have rows of their own here, from CRITICIZER_E450 on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from criticizer import texts
from criticizer.observability.health import CONFLICT, UNAVAILABLE
from criticizer.resilience.failures import Component, ErrorClass, kind_of


@dataclass(frozen=True, slots=True)
class ApiErrorKind:
    """One row of the table: everything fixed about an error answer."""

    status: int
    error: str
    code: str
    message: str


def _of_class(
    status: int, error_class: ErrorClass, component: Component = Component.INTERNAL, message: str = ""
) -> ApiErrorKind:
    kind = kind_of(error_class, component)
    return ApiErrorKind(status, error_class.value, kind.code, message or kind.message)


def _of_text(text: texts.Text, error: str, code: str) -> ApiErrorKind:
    return ApiErrorKind(text.status, error, code, text.text)


SCHEMA_INVALID = _of_class(400, ErrorClass.SCHEMA_INVALID)
INTERNAL_BUG = _of_class(
    500,
    ErrorClass.INTERNAL_BUG,
    message="Criticizer failed on this request. The failure is in its log.",
)
# Answered by `criticizer.observability.health`, which does not know the API.
WRITE_CONFLICT = _of_class(503, ErrorClass.WRITE_CONFLICT, Component.DATABASE, CONFLICT)
DATABASE_UNAVAILABLE = _of_class(503, ErrorClass.DATABASE_UNAVAILABLE, Component.DATABASE, UNAVAILABLE)

VERSION_CONFLICT = ApiErrorKind(
    409, "VERSION_CONFLICT", "CRITICIZER_E450",
    "This changelist has a newer or other version. Post a strictly higher review_version with rerun true.",
)  # fmt: skip
STATE_CONFLICT = ApiErrorKind(
    409, "STATE_CONFLICT", "CRITICIZER_E451", "The review is already final, so it cannot be changed."
)
AUTH_DENIED = _of_text(texts.NO_KEY, "AUTH_DENIED", "CRITICIZER_E452")
PERMISSION_DENIED = _of_text(texts.KEY_NOT_ALLOWED, "PERMISSION_DENIED", "CRITICIZER_E453")
NOT_FOUND = ApiErrorKind(404, "NOT_FOUND", "CRITICIZER_E454", "There is nothing at this address.")
METHOD_NOT_ALLOWED = ApiErrorKind(
    405, "METHOD_NOT_ALLOWED", "CRITICIZER_E455",
    "This address does not support the method. Use one of those in the Allow header.",
)  # fmt: skip
NOT_ACCEPTABLE = ApiErrorKind(
    406, "NOT_ACCEPTABLE", "CRITICIZER_E456", "The answer is JSON only. Accept application/json."
)
PAYLOAD_TOO_LARGE = _of_text(texts.BODY_TOO_LARGE, "PAYLOAD_TOO_LARGE", "CRITICIZER_E457")
UNSUPPORTED_MEDIA_TYPE = ApiErrorKind(
    415, "UNSUPPORTED_MEDIA_TYPE", "CRITICIZER_E458", "The body must be JSON: Content-Type: application/json."
)
RATE_LIMITED = ApiErrorKind(
    429, "RATE_LIMITED", "CRITICIZER_E459",
    "Too many requests with this key. Wait for the seconds in Retry-After, then repeat the request.",
)  # fmt: skip
IN_DOUBT = ApiErrorKind(
    503, ErrorClass.DATABASE_UNAVAILABLE.value, "CRITICIZER_E460",
    "The database was lost while the request was recorded. Post it again with the same idempotency_key.",
)  # fmt: skip
BUSY = ApiErrorKind(
    503, "BUSY", "CRITICIZER_E461",
    "Other requests for this changelist were recorded first, several times in a row. Post it again.",
)  # fmt: skip

TASK_NOT_FOUND = _of_text(texts.TASK_NOT_FOUND, "NOT_FOUND", "CRITICIZER_E462")
TASK_DONE = _of_text(texts.TASK_DONE, "TASK_DONE", "CRITICIZER_E463")
TASK_EXPIRED = _of_text(texts.TASK_EXPIRED, "TASK_EXPIRED", "CRITICIZER_E464")
TASK_CLAIMED = _of_text(texts.TASK_CLAIMED, "TASK_CLAIMED", "CRITICIZER_E465")
CLAIM_LOST = _of_text(texts.CLAIM_LOST, "CLAIM_LOST", "CRITICIZER_E466")
RESULT_NOT_JSON = _of_text(texts.RESULT_NOT_JSON, "RESULT_NOT_JSON", "CRITICIZER_E467")
RESULT_INVALID = _of_text(texts.RESULT_INVALID, "RESULT_INVALID", "CRITICIZER_E468")


def too_large(limit_bytes: int) -> ApiErrorKind:
    """Return PAYLOAD_TOO_LARGE with the limit of an address, a whole number of KiB."""
    kib = limit_bytes // 1024
    limit = f"{kib // 1024} MiB" if kib >= 1024 else f"{kib} KiB"
    return replace(PAYLOAD_TOO_LARGE, message=texts.BODY_TOO_LARGE.of(limit=limit))


API_TABLE: tuple[ApiErrorKind, ...] = (
    SCHEMA_INVALID, INTERNAL_BUG, VERSION_CONFLICT, STATE_CONFLICT, AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND,
    METHOD_NOT_ALLOWED, NOT_ACCEPTABLE, PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, RATE_LIMITED,
    WRITE_CONFLICT, DATABASE_UNAVAILABLE, IN_DOUBT, BUSY, TASK_NOT_FOUND, TASK_DONE, TASK_EXPIRED,
    TASK_CLAIMED, CLAIM_LOST, RESULT_NOT_JSON, RESULT_INVALID,
)  # fmt: skip
