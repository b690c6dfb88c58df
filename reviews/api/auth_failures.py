"""Security events of refused requests, bounded so that a flood of bad keys cannot fill the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from criticizer.models import SecurityEvent

log = structlog.get_logger(__name__)

SAME_SECONDS = 60.0  # one event for equal refusals in this time
PER_MINUTE = 30  # events in all, per process


class RefusalLog:
    """Writes at most one event per distinct refusal and minute, and PER_MINUTE in all.

    The next event's context counts the refusals left out in between (`suppressed`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[tuple[str, str, str, str], float] = {}
        self._suppressed = 0

    def note(self, kind: SecurityEvent.Kind, reason: str, name: str, address: str) -> bool:
        """Record a refusal of the key `name` ("" when unknown); return whether a row was written."""
        same = (kind.value, reason, name, address)
        now = self._clock()
        with self._lock:
            self._written = {seen: at for seen, at in self._written.items() if now - at < SAME_SECONDS}
            if same in self._written or len(self._written) >= PER_MINUTE:
                self._suppressed += 1
                return False
            self._written[same] = now
            suppressed, self._suppressed = self._suppressed, 0
        log.error(
            "api_key_refused",
            kind=kind.value,
            reason=reason,
            key=name,
            remote_address=address,
            suppressed=suppressed,
        )
        SecurityEvent.objects.create(
            kind=kind,
            reason=reason,
            actor=name,
            context={"remote_address": address, "suppressed": suppressed},
        )
        return True

    def reset(self) -> None:
        """Empty the log (tests)."""
        with self._lock:
            self._written.clear()
            self._suppressed = 0


REFUSALS = RefusalLog()
