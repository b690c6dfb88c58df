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
    """Secrets of one service, of which one is in use.

    When it is refused, the next one is tried, and stays in use if it is accepted. Each call tries every
    secret at most once, also while other threads change the secret in use.
    """

    def __init__(self, event: str, secrets: Sequence[S], unset: S) -> None:
        """Start with the first secret.

        `event` is the log event of a refused secret; calls get `unset` where there is none.
        """
        self._event = event
        self._secrets = secrets
        self._unset = unset
        self._in_use = 0

    def in_turn(self) -> list[tuple[int, S]]:
        """Return the secrets with their indexes in the order of one call, the one in use first.

        Call it once for each call: another call may change which secret comes first.
        """
        secrets = list(self._secrets) or [self._unset]
        order = ((self._in_use + turn) % len(secrets) for turn in range(len(secrets)))
        return [(index, secrets[index]) for index in order]

    def accept(self, index: int) -> None:
        """Use this secret first from now on."""
        self._in_use = index

    def call(self, call: Callable[[S], T]) -> T:
        """Call with the secret in use, then the others; raise the last AUTH_DENIED."""
        secrets = self.in_turn()
        for turn, (index, secret) in enumerate(secrets, 1):
            try:
                result = call(secret)
            except PermanentFailure as failure:
                if failure.error_class is not ErrorClass.AUTH_DENIED or turn == len(secrets):
                    raise
                log.warning(self._event, position=index + 1)
            else:
                self.accept(index)
                return result
        raise AssertionError("unreachable")
