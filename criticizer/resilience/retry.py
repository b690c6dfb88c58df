"""Backoff of stages and of database reconnection, as pure values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter, in seconds."""

    initial: float = 1.0
    multiplier: float = 2.0
    maximum: float = 60.0
    ceiling: float = 300.0  # of an upstream's Retry-After

    def delay(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after the failed `attempt` (1 is the first).

        They are `random(0, min(maximum, initial * multiplier^(attempt-1)))`, or `retry_after` where the
        upstream asks for more, but never above `ceiling`. Raises ValueError when `attempt` is below 1.
        """
        if attempt < 1:
            raise ValueError(f"attempt counts from 1, not {attempt}")
        # The exponent is bounded first: 2.0 ** 5000 does not fit a float.
        bound = min(self.maximum, self.initial * self.multiplier ** min(attempt - 1, 64))
        return min(max(draw(0.0, bound), retry_after or 0.0), self.ceiling)


@dataclass(frozen=True, slots=True)
class ConnectionProfile:
    """Waits for a lost connection, `tries` times.

    Each is `min(base * 2^n, maximum) + random(0, jitter)` seconds.
    """

    base: float = 2.0
    maximum: float = 30.0
    jitter: float = 2.0
    tries: int = 10

    def waits(self, uniform: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
        """Yield the seconds before each further try; each is drawn when it is needed."""
        for n in range(self.tries):
            yield min(self.base * 2.0**n, self.maximum) + uniform(0.0, self.jitter)


draw = random.uniform
BACKOFF = Backoff()
CONNECTION = ConnectionProfile()
MAX_ATTEMPTS_PER_STAGE = 5  # including the first
