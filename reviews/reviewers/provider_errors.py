"""Classifies the error answers of model servers.

An error body may quote our request or our key, so none of its free text goes into a failure,
only the status and a code reduced to word characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from criticizer.http_client import Answer, retry_after
from criticizer.resilience.failures import (
    NO_CREDIT,
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)

_BY_STATUS: Mapping[int, tuple[ErrorClass, str]] = {
    401: (ErrorClass.AUTH_DENIED, "the model server refused our key"),
    402: (ErrorClass.PERMISSION_DENIED, NO_CREDIT),
    403: (ErrorClass.PERMISSION_DENIED, "the model server does not permit this to our key"),
    404: (ErrorClass.NOT_FOUND, "the model server does not know this model or address"),
    407: (ErrorClass.AUTH_DENIED, "the proxy before the model server refused us"),
    408: (ErrorClass.NETWORK_TIMEOUT, "the model server gave up waiting for the request"),
    409: (ErrorClass.UPSTREAM_UNAVAILABLE, "the model server reported a conflict"),
    410: (ErrorClass.NOT_FOUND, "the model or address is gone from the model server"),
    413: (ErrorClass.TOKEN_LIMIT, "the request is larger than the model server accepts"),
    425: (ErrorClass.UPSTREAM_UNAVAILABLE, "the model server is not ready"),
    429: (ErrorClass.RATE_LIMITED, "the model server asked us to slow down"),
    502: (ErrorClass.UPSTREAM_UNAVAILABLE, "the gateway before the model server failed"),
    503: (ErrorClass.UPSTREAM_UNAVAILABLE, "the model server is unavailable"),
    504: (ErrorClass.UPSTREAM_UNAVAILABLE, "the gateway before the model server timed out"),
    529: (ErrorClass.UPSTREAM_UNAVAILABLE, "the model server is overloaded"),
}

# Codes that providers put into the envelope, whatever the status says.
_BY_CODE: Mapping[str, tuple[ErrorClass, str]] = {
    "context_length_exceeded": (ErrorClass.TOKEN_LIMIT, "the request is longer than the model's window"),
    "request_too_large": (ErrorClass.TOKEN_LIMIT, "the request is larger than the model server accepts"),
    "content_filter": (ErrorClass.POLICY_REJECTED, "the model server's content filter refused the request"),
    "content_policy_violation": (ErrorClass.POLICY_REJECTED, "the model server's policy refused the request"),
    "rate_limit_exceeded": (ErrorClass.RATE_LIMITED, "the model server asked us to slow down"),
    "rate_limit_error": (ErrorClass.RATE_LIMITED, "the model server asked us to slow down"),
    "insufficient_quota": (ErrorClass.RATE_LIMITED, "the quota at the model server is used up"),
    "overloaded_error": (ErrorClass.UPSTREAM_UNAVAILABLE, "the model server is overloaded"),
    "internal_error": (ErrorClass.UPSTREAM_INTERNAL, "the model server reported an internal error"),
    "server_error": (ErrorClass.UPSTREAM_INTERNAL, "the model server reported an internal error"),
    "api_error": (ErrorClass.UPSTREAM_INTERNAL, "the model server reported an internal error"),
    "model_not_found": (ErrorClass.NOT_FOUND, "the model server does not know this model"),
    "invalid_api_key": (ErrorClass.AUTH_DENIED, "the model server refused our key"),
    "authentication_error": (ErrorClass.AUTH_DENIED, "the model server refused our key"),
    "permission_error": (ErrorClass.PERMISSION_DENIED, "the model server does not permit this to our key"),
    "not_found_error": (ErrorClass.NOT_FOUND, "the model server does not know this model or address"),
}

_TOO_LONG = re.compile(
    r"context (?:length|window|size)|maximum (?:context|prompt|input)|prompt is too long"
    r"|too many (?:input )?tokens|exceeds? the (?:available|model)",
    re.IGNORECASE,
)
_RETRYABLE = frozenset(
    {
        ErrorClass.NETWORK_TIMEOUT,
        ErrorClass.NETWORK_UNREACHABLE,
        ErrorClass.UPSTREAM_UNAVAILABLE,
        ErrorClass.UPSTREAM_INTERNAL,
        ErrorClass.RATE_LIMITED,
    }
)


def failure(
    error_class: ErrorClass,
    detail: str,
    *,
    retry_after_seconds: float | None = None,
    **context: object,
) -> Failure:
    """Make a failure of the reviewer, retryable or not as the taxonomy says."""
    kind = RetryableFailure if error_class in _RETRYABLE else PermanentFailure
    return kind(
        error_class, Component.REVIEWER, detail, context=context, retry_after_seconds=retry_after_seconds
    )


def failure_of_answer(answer: Answer, call_id: str) -> Failure:
    """Classify an answer that is not a completion."""
    status, headers = answer.status, answer.headers
    code, message = _envelope(answer.body)
    found = _BY_CODE.get(code) if code else None
    if found is None and status in {400, 413, 422, 500} and _TOO_LONG.search(message):
        found = _BY_CODE["context_length_exceeded"]
    # 401 and 429 are unambiguous; a gateway's own code must not weaken them. An internal error says less than
    # 503, with which servers send it while they are overloaded.
    is_vague = (
        found is not None and found[0] is ErrorClass.UPSTREAM_INTERNAL and status in {502, 503, 504, 529}
    )
    if found is None or is_vague or status in {401, 429}:
        found = _BY_STATUS.get(status) or found or _by_hundreds(status)
    error_class, detail = found
    return failure(
        error_class,
        detail,
        retry_after_seconds=retry_after(headers, lenient=True) if error_class in _RETRYABLE else None,
        call=call_id,
        status=status,
        provider_code=code,
        provider_request=_word(headers.get("x-request-id") or headers.get("request-id") or ""),
    )


def refused_parameter(answer: Answer, names: tuple[str, ...]) -> str:
    """Return which optional request parameter a server's 400 or 422 complains about, or ''."""
    if answer.status not in {400, 422}:
        return ""
    try:
        text = json.dumps(json.loads(answer.body))
    except (ValueError, RecursionError):
        text = answer.body.decode(errors="replace")
    return next((name for name in names if name in text), "")


def _by_hundreds(status: int) -> tuple[ErrorClass, str]:
    if 300 <= status < 400:
        return ErrorClass.CONFIG_INVALID, "the model server redirects, and redirects are refused"
    if status >= 500:
        return ErrorClass.UPSTREAM_INTERNAL, "the model server reported an internal error"
    if 400 <= status < 500:
        return ErrorClass.SCHEMA_INVALID, "the model server does not accept the form of the request"
    return ErrorClass.SCHEMA_INVALID, "the model server's answer is not in the documented form"


def _envelope(body: bytes) -> tuple[str, str]:
    """Return the code and the message of an error envelope of either provider, else empty."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return "", body[:2000].decode(errors="replace")
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return "", str(error)[:2000]
    words = [_word(str(error.get(name) or "")) for name in ("code", "type")]
    code = next((word for word in words if word in _BY_CODE), next(filter(None, words), ""))
    return code, str(error.get("message", ""))[:2000]


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "", text[:200])[:64]
