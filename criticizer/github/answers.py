"""The meaning of GitHub's refusals (https://docs.github.com/rest/using-the-rest-api)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from criticizer.http_client import Answer, retry_after
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    QuotaExceeded,
    RetryableFailure,
    UncertainFailure,
)

_LIMIT = re.compile(r"secondary rate|rate[ -]limit|abuse|submitted too quickly", re.IGNORECASE)
_CLOSED = re.compile(r"issue is locked|conversation is locked|archived|read-only", re.IGNORECASE)
_VERSION = re.compile(r"api[ -]version", re.IGNORECASE)
_MAX_MESSAGE = 200
_PERMISSIONS = "x-accepted-github-permissions"


def said(answer: Answer) -> str:
    """Return GitHub's own words about a refusal, for the failure's context: one short line."""
    message = (answer.json() or {}).get("message")
    text = message if isinstance(message, str) else ""
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_MESSAGE])


def reasons(context: Mapping[str, object]) -> str:
    """Return what a failure's context has of the answer's reasons."""
    return str(context.get("reasons", ""))


def is_missing_permission(answer: Answer) -> bool:
    return answer.status == 403 and "not accessible by integration" in said(answer)


def is_limit(answer: Answer) -> bool:
    """Say whether a limit refused the request, so that it was not executed."""
    if answer.status == 429:
        return True
    if answer.status not in {403, 422}:
        return False
    words = f"{said(answer)} {(answer.json() or {}).get('documentation_url', '')}"
    if answer.status == 422:
        return "submitted too quickly" in words
    headers = answer.headers
    return bool(
        "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0" or _LIMIT.search(words)
    )


def limit_seconds(answer: Answer, now: float) -> float | None:
    """Return how long a limit lasts, as far as the answer says so; None where it does not.

    The time of the reset counts only where nothing is left: with a secondary limit it is that of another.
    """
    if (asked := retry_after(answer.headers, lambda: now)) is not None:
        return asked
    reset = answer.headers.get("x-ratelimit-reset", "")
    if answer.headers.get("x-ratelimit-remaining") == "0" and re.fullmatch(r"[0-9]{1,12}", reset):
        return max(float(reset) - _server_time(answer, now), 0.0) + 1.0
    return None


def _server_time(answer: Answer, now: float) -> float:
    """Return GitHub's own time: the reset is a time of its clock, not of ours."""
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (TypeError, ValueError, OverflowError):
        return now


def failure_of(answer: Answer, place: Component, *, acts: bool, now: float | None = None) -> Failure:
    """Return the failure that a refusal is. `acts`: the request, if executed, must not be repeated."""
    context = _context(answer)
    if is_limit(answer):
        seconds = limit_seconds(answer, time.time() if now is None else now)
        return QuotaExceeded(place, "GitHub's limit for this App is reached", seconds, context=context)
    status = answer.status
    if status >= 500 or status == 408:
        classes = {502: ErrorClass.UPSTREAM_UNAVAILABLE, 503: ErrorClass.UPSTREAM_UNAVAILABLE,
                   504: ErrorClass.NETWORK_TIMEOUT, 408: ErrorClass.NETWORK_TIMEOUT}  # fmt: skip
        kind = UncertainFailure if acts else RetryableFailure
        error_class = classes.get(status, ErrorClass.UPSTREAM_INTERNAL)
        return kind(error_class, place, f"GitHub answered {status}", context=context)
    if status < 300:
        return unreadable(answer, place, acts=acts)
    if status == 409:
        return RetryableFailure(ErrorClass.WRITE_CONFLICT, place, "GitHub answered 409", context=context)
    error_class, remedy = _refusal(answer)
    where = {ErrorClass.CONFIG_INVALID: Component.CONFIGURATION, ErrorClass.INTERNAL_BUG: Component.INTERNAL}
    detail = f"GitHub answered {status}: {remedy}"
    return PermanentFailure(error_class, where.get(error_class, place), detail, context=context)


def unreadable(answer: Answer, place: Component, *, acts: bool) -> Failure:
    """Return the failure of a positive answer that is not in its documented form."""
    kind = UncertainFailure if acts else RetryableFailure
    detail = f"GitHub answered {answer.status} in a form that cannot be read"
    return kind(ErrorClass.UPSTREAM_INTERNAL, place, detail, context=_context(answer))


def _context(answer: Answer) -> dict[str, object]:
    found: dict[str, object] = {"status": answer.status}
    if words := said(answer):
        found["github_said"] = words
    if codes := _reasons(answer):
        found["reasons"] = codes
    request = answer.headers.get("x-github-request-id", "")
    if re.fullmatch(r"[0-9A-Fa-f:]{1,80}", request):
        found["provider_request"] = request
    return found


def _reasons(answer: Answer) -> str:
    """Return the codes and texts of `errors`: a list of strings with some calls, of objects with others."""
    errors = (answer.json() or {}).get("errors")
    texts = []
    for error in errors if isinstance(errors, list) else []:
        parts = [error.get(key) for key in ("field", "code")] if isinstance(error, dict) else [error]
        texts.append(" ".join(part for part in parts if isinstance(part, str)))
    return "".join(c if c.isprintable() else " " for c in "; ".join(filter(None, texts))[:_MAX_MESSAGE])


def _refusal(answer: Answer) -> tuple[ErrorClass, str]:
    status, words = answer.status, said(answer)
    if status == 403 and _CLOSED.search(words):
        return ErrorClass.RECIPIENT_REJECTED, "the conversation is locked or the repository archived"
    if status == 403:
        needed = "".join(c for c in answer.headers.get(_PERMISSIONS, "")[:200] if c.isprintable())
        return ErrorClass.PERMISSION_DENIED, (
            f"the App lacks a permission (it takes {needed}): grant it and let the owner accept it"
            if needed
            else "the App lacks a permission, or the owner's policy refuses it or suspended it"
        )
    if status == 410 and _VERSION.search(words):
        return ErrorClass.CONFIG_INVALID, "this version of its API is retired: update Criticizer"
    return _REFUSALS.get(status, _NO_API)


_REFUSALS = {
    400: (ErrorClass.INTERNAL_BUG, "the request was not well formed"),
    401: (
        ErrorClass.AUTH_DENIED,
        "it refused the App's key or token: check GITHUB_APP_ID, GITHUB_PRIVATE_KEY",
    ),
    404: (ErrorClass.NOT_FOUND, "it does not exist, was renamed, or the App is not installed there"),
    410: (ErrorClass.RECIPIENT_REJECTED, "comments are switched off there, or it was deleted"),
    415: (ErrorClass.INTERNAL_BUG, "the request was not well formed"),
    422: (ErrorClass.SCHEMA_INVALID, "it does not accept the content"),
}
_NO_API = (ErrorClass.CONFIG_INVALID, "GITHUB_API_URL does not lead to the API")
