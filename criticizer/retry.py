"""Backoff as a pure value (specification 000, 8.2)."""

from __future__ import annotations

import random
from collections.abc import Callable
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


BACKOFF = Backoff()
MAX_ATTEMPTS_PER_STAGE = 5  # inclusive of the first attempt (8.3)
