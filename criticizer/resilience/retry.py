"""Waits as pure values: backoff of stages (specification 000, 8.2), of a lost database (002, 3.1)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter.

    All fields are seconds but `multiplier`. `ceiling` bounds what an upstream's Retry-After
    may ask for.
    """

    initial: float = 1.0
    multiplier: float = 2.0
    maximum: float = 60.0
    ceiling: float = 300.0

    def delay(
        self,
        attempt: int,
        retry_after: float | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> float:
        """Return the seconds to wait after the failed `attempt` (1 is the first).

        `random(0, min(maximum, initial * multiplier^(attempt-1)))`, raised to `retry_after`
        where the upstream asks for more, never above `ceiling`. Recomputed per attempt.

        Raises ValueError when `attempt` is below 1.
        """
        if attempt < 1:
            raise ValueError(f"attempt counts from 1, not {attempt}")
        # The exponent is bounded first: 2.0 ** 5000 does not fit a float.
        bound = min(self.maximum, self.initial * self.multiplier ** min(attempt - 1, 64))
        return min(max(uniform(0.0, bound), retry_after or 0.0), self.ceiling)


@dataclass(frozen=True, slots=True)
class ConnectionProfile:
    """How long to wait for a lost connection: `min(base * 2^n, maximum) + random(0, jitter)`.

    The profile `connection` of specification 002, 3.1. All fields are seconds but `tries`.
    """

    base: float = 2.0
    maximum: float = 30.0
    jitter: float = 2.0
    tries: int = 10

    def waits(self, uniform: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
        """Yield the seconds before each further try; each is drawn when it is asked for."""
        for n in range(self.tries):
            yield min(self.base * 2.0**n, self.maximum) + uniform(0.0, self.jitter)


BACKOFF = Backoff()
CONNECTION = ConnectionProfile()
MAX_ATTEMPTS_PER_STAGE = 5  # inclusive of the first attempt (8.3)
