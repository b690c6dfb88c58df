"""One HTTP exchange with an outside service; its failures say whether the service may have acted."""

from __future__ import annotations

import ssl

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


def exchange(
    request: Request,
    limits: Limits,
    who: str,
    *,
    acts: bool = True,
    tls: ssl.SSLContext | None = None,
    place: Component = Component.PROVIDER,
) -> Answer:
    """Make one request without redirects, proxies or retries; `who` names the service in failures.

    `acts` is False for a question: one that was not answered is asked again. Raises RetryableFailure
    NETWORK_* when no request reached the server, or when it was only a question; UncertainFailure
    NETWORK_* when the server may have acted on it.
    """
    try:
        return http_client.exchange(request, limits, tls=tls)
    except ExchangeFailed as error:
        raise _failure(error, who, place, acts=acts) from error


def _failure(error: ExchangeFailed, who: str, place: Component, *, acts: bool) -> Failure:
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
    return kind(error_class, place, detail, context={"cause": error.cause})
