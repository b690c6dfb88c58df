"""Budget of one scan: candidates that may be read, and the time they may take."""

from __future__ import annotations

import math
import time
from typing import Final

from criticizer.redaction.redacted_text import RedactionBlocked

_LOOKS_AT_CLOCK: Final = 4_096  # work between two looks at the clock


class Work:
    """Count of candidates, which ends the scan of a hostile text.

    `deadline` is in processor time of this thread, so that a busy machine does not end a scan.
    """

    __slots__ = ("_deadline", "_look_at", "left")

    def __init__(self, size: int, deadline: float = math.inf) -> None:
        self.left = 100_000 + 4 * size
        self._deadline = deadline
        self._look_at = self.left

    def spend(self, amount: int) -> None:
        """Subtract `amount` from the budget. Raises RedactionBlocked (`budget`, `too_slow`)."""
        self.left -= amount
        if self.left < 0:
            raise RedactionBlocked("budget")
        if self.left <= self._look_at:
            self._look_at = self.left - _LOOKS_AT_CLOCK
            self.look_at_clock()

    def look_at_clock(self) -> None:
        if time.thread_time() > self._deadline:
            raise RedactionBlocked("too_slow")
