"""Secrets that rotate without downtime (guarantee G107)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import structlog

from criticizer.resilience.failures import ErrorClass, PermanentFailure

log = structlog.get_logger(__name__)
S = TypeVar("S")
T = TypeVar("T")


class RotatingSecrets(Generic[S]):
    """When the secret in use is refused, the next one is tried, and stays in use if it is accepted.

    Each call tries every secret at most once, whatever other threads find out meanwhile.
    """

    def __init__(self, event: str, secrets: Sequence[S], unset: S) -> None:
        """`event` is the log event of a refused secret; calls get `unset` where there is none."""
        self._event = event
        self._secrets = secrets
        self._unset = unset
        self._in_use = 0

    def call(self, call: Callable[[S], T]) -> T:
        """Call with the last accepted secret, then the others; raise the last AUTH_DENIED."""
        secrets = list(self._secrets) or [self._unset]
        first = self._in_use  # once: another thread may find the accepted one meanwhile
        for turn in range(len(secrets)):
            index = (first + turn) % len(secrets)
            try:
                result = call(secrets[index])
            except PermanentFailure as failure:
                if failure.error_class is not ErrorClass.AUTH_DENIED or turn + 1 == len(secrets):
                    raise
                log.warning(self._event, position=index + 1)
            else:
                self._in_use = index
                return result
        raise AssertionError("unreachable")
