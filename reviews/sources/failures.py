"""Failures of sources. The component of each follows from its class."""

from __future__ import annotations

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure

_PLACES = {
    ErrorClass.CONFIG_INVALID: Component.CONFIGURATION,
    ErrorClass.INTERNAL_BUG: Component.INTERNAL,
    ErrorClass.PATH_DENIED: Component.INTERNAL,
    ErrorClass.POLICY_REJECTED: Component.INTERNAL,  # by a limit of this installation
}


def place_of(error_class: ErrorClass) -> Component:
    return _PLACES.get(error_class, Component.SOURCE)


def permanent(error_class: ErrorClass, detail: str, /, **context: object) -> PermanentFailure:
    return PermanentFailure(error_class, place_of(error_class), detail, context=context)


def retryable(
    error_class: ErrorClass, detail: str, wait: float | None = None, /, **context: object
) -> RetryableFailure:
    """Return a failure that may pass. `wait`: the seconds until it is worth another attempt."""
    place = place_of(error_class)
    return RetryableFailure(error_class, place, detail, context=context, retry_after_seconds=wait)


def not_found(detail: str) -> PermanentFailure:
    return permanent(ErrorClass.NOT_FOUND, detail)


def misconfigured(detail: str, /, **context: object) -> PermanentFailure:
    return permanent(ErrorClass.CONFIG_INVALID, detail, **context)


def too_large(detail: str, /, **context: object) -> PermanentFailure:
    """Return the failure of what is over a limit of this installation."""
    return permanent(ErrorClass.POLICY_REJECTED, detail, **context)


def unavailable(detail: str, wait: float | None = None, /, **context: object) -> RetryableFailure:
    return retryable(ErrorClass.UPSTREAM_UNAVAILABLE, detail, wait, **context)
