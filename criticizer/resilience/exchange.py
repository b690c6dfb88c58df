"""HTTP exchange with an outside service; a failure says whether the service may have acted."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from math import inf

from criticizer import http_client
from criticizer.http_client import Answer, ExchangeFailed, Fault, Limits, Phase, Request
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)

# A call of a provider or a code host is several exchanges: pages of a list, comments one by one. Each is
# bounded, but the other side decides how many there are, and a worker waits for all of them.
CALL_SECONDS = 120.0
# Answers of servers that failed or stopped waiting; every other 5xx is UPSTREAM_INTERNAL.
STATUSES = {
    408: ErrorClass.NETWORK_TIMEOUT,
    502: ErrorClass.UPSTREAM_UNAVAILABLE,
    503: ErrorClass.UPSTREAM_UNAVAILABLE,
    504: ErrorClass.NETWORK_TIMEOUT,
}
_until: ContextVar[float] = ContextVar("until", default=inf)


@contextmanager
def one_call() -> Iterator[None]:
    """Limit all exchanges of the block to CALL_SECONDS together.

    An earlier deadline of an outer block holds. An exchange that begins later raises RetryableFailure
    NETWORK_TIMEOUT; one that is in progress fails then as one that is not answered (guarantee G588).
    """
    token = _until.set(min(time.monotonic() + CALL_SECONDS, _until.get()))
    try:
        yield
    finally:
        _until.reset(token)


def exchange(
    request: Request,
    limits: Limits,
    who: str,
    *,
    acts: bool = True,
    tls: ssl.SSLContext | None = None,
    component: Component = Component.PROVIDER,
) -> Answer:
    """Make one request without redirects, proxies or retries.

    `who` names the service in failures. `acts` is False for a request that only reads and may be repeated.
    Raises RetryableFailure NETWORK_* when no request reached the server, or when it only reads;
    UncertainFailure NETWORK_* when the server may have acted on it.
    """
    left = _until.get() - time.monotonic()
    if left <= 0:
        detail = f"{who} answers too slowly, or asks for too many requests, for one call"
        raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, component, detail)
    if left < (limits.total_timeout_seconds or inf):
        limits = replace(limits, total_timeout_seconds=left)
    try:
        return http_client.exchange(request, limits, tls=tls)
    except ExchangeFailed as error:
        raise _failure(error, who, component, acts=acts) from error


def _failure(error: ExchangeFailed, who: str, component: Component, *, acts: bool) -> Failure:
    is_late = error.fault is Fault.TIMEOUT
    error_class = ErrorClass.NETWORK_TIMEOUT if is_late else ErrorClass.NETWORK_UNREACHABLE
    kind: type[Failure] = RetryableFailure
    if error.phase is not Phase.BEFORE_SEND:
        kind = UncertainFailure if acts else RetryableFailure
        detail = f"{who} did not answer the request it was sent"
    elif error.fault is Fault.UNUSABLE_REQUEST:
        detail = f"{who}: its address or a key has characters that cannot be sent"
        return PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, detail)
    elif error.certificate:
        detail = f"the certificate of {who} is not trusted: {error.certificate}"
    else:
        detail = f"no connection to {who}"
    return kind(error_class, component, detail, context={"cause": error.cause})
