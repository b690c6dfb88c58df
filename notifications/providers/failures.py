"""Failures of providers from statuses and broken connections."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping

from criticizer.resilience.exchange import STATUSES
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)

_REQUEST_IDS = ("x-request-id", "request-id", "x-message-id", "x-slack-req-id", "x-amzn-requestid")
_WORD = re.compile(r"[\w.:+=/-]{1,128}", re.ASCII)
Context = Mapping[str, object]


class NotWanted(PermanentFailure):
    """The recipient has no use for the message any more: nothing was sent, and nothing is wrong.

    Its delivery is superseded, and its job succeeds without it.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, detail)


def answered(status: int, headers: Mapping[str, str]) -> dict[str, object]:
    """Return the context of an answer: its status, and the provider's request id if any."""
    found = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), "")
    return {"status": status} | ({"provider_request": found} if _WORD.fullmatch(found) else {})


def retryable(
    error_class: ErrorClass, detail: str, context: Context | None = None, wait: float | None = None
) -> RetryableFailure:
    """Return the failure of a message certainly not sent, or of an unanswered question."""
    return RetryableFailure(
        error_class, Component.PROVIDER, detail, context=context, retry_after_seconds=wait
    )


def permanent(error_class: ErrorClass, detail: str, context: Context | None = None) -> PermanentFailure:
    is_ours = error_class is ErrorClass.CONFIG_INVALID
    place = Component.CONFIGURATION if is_ours else Component.PROVIDER
    return PermanentFailure(error_class, place, detail, context=context)


def misconfigured(detail: str) -> PermanentFailure:
    return permanent(ErrorClass.CONFIG_INVALID, detail)


def uncertain(
    error_class: ErrorClass, detail: str, context: Context | None = None, wait: float | None = None
) -> UncertainFailure:
    """Return the failure of a message that may have been sent."""
    return UncertainFailure(
        error_class, Component.PROVIDER, detail, context=context, retry_after_seconds=wait
    )


def temporary_failure(
    status: int, detail: str, context: Context, wait: float | None = None
) -> RetryableFailure | UncertainFailure | None:
    """Return the failure of an HTTP status that is not a refusal; None for one that is.

    429 sent nothing; after 408 and 5xx the provider may have acted.
    """
    if status == 429:
        return retryable(ErrorClass.RATE_LIMITED, detail, context, wait)
    if status >= 500 or status in STATUSES:
        return uncertain(STATUSES.get(status, ErrorClass.UPSTREAM_INTERNAL), detail, context, wait)
    return None


def of_question(failure: Failure) -> Failure:
    """Return the failure of a request that changes nothing: it can always be repeated."""
    if isinstance(failure, UncertainFailure):
        return retryable(failure.error_class, failure.detail, failure.context, failure.retry_after_seconds)
    return failure


def connection_failure(error: OSError, server: str, host: str, tls_hint: str) -> Failure:
    """Return the failure of a connection over which nothing was sent.

    `server` names it in details, `host` is the variable of its host name, `tls_hint` what to check when
    TLS fails.
    """
    unreachable, context = ErrorClass.NETWORK_UNREACHABLE, {"cause": type(error).__name__}
    match error:
        case TimeoutError():
            return retryable(ErrorClass.NETWORK_TIMEOUT, f"{server} did not answer in time", context)
        case ssl.SSLCertVerificationError():
            return misconfigured(f"{server}'s certificate is not trusted: {error.verify_message}")
        case ssl.SSLError():
            return retryable(unreachable, f"TLS with {server} failed: {tls_hint}", context)
        case socket.gaierror():
            return retryable(unreachable, f"the host of {host} is unknown", context)
        case ConnectionRefusedError():
            return retryable(unreachable, f"no connection to {server}: its port is closed", context)
        case _:
            return retryable(unreachable, f"no connection to {server}", context)
