"""Failures for error responses of code hosts: the rules that all hosts share."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from criticizer.http_client import Answer, retry_after
from criticizer.resilience.exchange import STATUSES
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
_CLOSED = re.compile(r"(?:issue|conversation) is locked|locked issue|archived|read-only", re.IGNORECASE)
_MAX_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class ErrorMeanings:
    """Meanings of one host's errors."""

    label: str  # of the host
    meaning: Callable[[Answer], tuple[ErrorClass, str]]  # class and remedy of a 4xx answer


def of_account(label: str) -> ErrorMeanings:
    """Return the error meanings of a host with authentication by `<LABEL>_TOKEN`."""
    name = label.upper()
    known = {
        401: (ErrorClass.AUTH_DENIED, f"it refused the token: check {name}_TOKEN"),
        403: (ErrorClass.PERMISSION_DENIED, f"the account of {name}_TOKEN, or its token, lacks a permission"),
        404: (ErrorClass.NOT_FOUND, f"it does not exist, or the account of {name}_TOKEN may not see it"),
        410: (ErrorClass.RECIPIENT_REJECTED, "comments are switched off there, or it was deleted"),
        423: (ErrorClass.RECIPIENT_REJECTED, "the conversation is locked or the repository archived"),
        400: (ErrorClass.SCHEMA_INVALID, "it does not accept the content"),
        422: (ErrorClass.SCHEMA_INVALID, "it does not accept the content"),
    }
    no_api = (ErrorClass.CONFIG_INVALID, f"{name}_URL does not lead to its site")
    return ErrorMeanings(
        label,
        lambda answer: known[423] if is_locked_or_archived(answer) else known.get(answer.status, no_api),
    )


def error_message(answer: Answer) -> str:
    """Return the host's own error message for the failure's context: one short line."""
    content = answer.json() or {}
    message = content.get("message") or content.get("error") or ""
    text = message if isinstance(message, str) else json.dumps(message)
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_MESSAGE])


def is_locked_or_archived(answer: Answer) -> bool:
    """Return whether nothing can be written: a locked conversation, an archived repository."""
    return answer.status == 403 and bool(_CLOSED.search(error_message(answer)))


def is_rate_limited(answer: Answer) -> bool:
    """Return whether a limit refused the request, so that it was not executed."""
    if answer.status == 429:
        return True
    if answer.status not in {403, 422}:
        return False
    words = f"{error_message(answer)} {(answer.json() or {}).get('documentation_url', '')}"
    if answer.status == 422:
        return "submitted too quickly" in words
    headers = answer.headers
    return bool(
        "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0" or _LIMIT.search(words)
    )


def limit_seconds(answer: Answer, now: float) -> float | None:
    """Return the seconds until a limit ends, None where the answer does not say.

    The reset time is used only if no calls are left: under a secondary rate limit the header describes the
    primary one.
    """
    if (asked := asked_seconds(answer, now)) is not None:
        return asked
    calls_left, seconds = quota_of(answer, now)
    return seconds + 1.0 if calls_left == 0 else None


def asked_seconds(answer: Answer, now: float) -> float | None:
    """Return the seconds that the answer asks to wait, by the host's clock, or None."""
    return retry_after(answer.headers, lambda: server_time(answer, now))


def quota_of(answer: Answer, now: float) -> tuple[int | None, float]:
    """Return the calls left, None if the answer does not say, and the seconds until the reset."""
    found = [answer.headers.get(f"x-ratelimit-{name}", "") for name in ("remaining", "reset")]
    if not all(re.fullmatch(r"[0-9]{1,12}", number) for number in found):
        return None, 0.0
    return int(found[0]), max(float(found[1]) - server_time(answer, now), 0.0)


def server_time(answer: Answer, now: float) -> float:
    """Return the time of the server's Date header, `now` without one.

    The other times of the answer are by the same clock.
    """
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (TypeError, ValueError, OverflowError):
        return now


def failure_of(
    meanings: ErrorMeanings, answer: Answer, component: Component, *, acts: bool, now: float | None = None
) -> Failure:
    """Return the failure for an error response. `acts`: the request must not be repeated."""
    context, now = _context(answer), time.time() if now is None else now
    if is_rate_limited(answer):
        seconds = limit_seconds(answer, now)
        detail = f"the rate limit of {meanings.label} is used up"
        return QuotaExceeded(component, detail, seconds, context=context)
    status, wait = answer.status, asked_seconds(answer, now)
    detail = f"{meanings.label} answered {status}"
    if status >= 500 or status == 408:
        kind = UncertainFailure if acts else RetryableFailure
        error_class = STATUSES.get(status, ErrorClass.UPSTREAM_INTERNAL)
        return kind(error_class, component, detail, context=context, retry_after_seconds=wait)
    if status < 300:
        return unreadable(meanings, answer, component, acts=acts)
    if status == 409:
        conflict = ErrorClass.WRITE_CONFLICT
        return RetryableFailure(conflict, component, detail, context=context, retry_after_seconds=wait)
    error_class, remedy = meanings.meaning(answer)
    where = {ErrorClass.CONFIG_INVALID: Component.CONFIGURATION, ErrorClass.INTERNAL_BUG: Component.INTERNAL}
    return PermanentFailure(
        error_class, where.get(error_class, component), f"{detail}: {remedy}", context=context
    )


def unreadable(meanings: ErrorMeanings, answer: Answer, component: Component, *, acts: bool) -> Failure:
    """Return the failure for a successful response without its documented form."""
    kind = UncertainFailure if acts else RetryableFailure
    detail = f"{meanings.label} answered {answer.status} in a form that cannot be read"
    return kind(ErrorClass.UPSTREAM_INTERNAL, component, detail, context=_context(answer))


def _context(answer: Answer) -> dict[str, object]:
    found: dict[str, object] = {"status": answer.status}
    if words := error_message(answer):
        found["host_said"] = words
    if codes := _reasons(answer):
        found["reasons"] = codes
    request = answer.headers.get("x-github-request-id", "")
    if re.fullmatch(r"[0-9A-Fa-f:]{1,80}", request):
        found["provider_request"] = request
    return found


def _reasons(answer: Answer) -> str:
    """Return the codes and texts of `errors`, a list of strings or of objects."""
    errors = (answer.json() or {}).get("errors")
    texts = []
    for error in errors if isinstance(errors, list) else []:
        parts = [error.get(key) for key in ("field", "code")] if isinstance(error, dict) else [error]
        texts.append(" ".join(part for part in parts if isinstance(part, str)))
    return "".join(c if c.isprintable() else " " for c in "; ".join(filter(None, texts))[:_MAX_MESSAGE])
