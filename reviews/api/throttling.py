"""Rate limit of requests to the API, by key (`API_THROTTLE`)."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, ClassVar

import structlog
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from reviews.api.auth import client_of

log = structlog.get_logger(__name__)


@functools.lru_cache(maxsize=8)
def _parse_rate(rate: str) -> tuple[int, float]:
    count, seconds = SimpleRateThrottle.parse_rate(None, rate)  # type: ignore[arg-type]
    return int(count or 1), float(seconds or 1)


class ApiKeyThrottle(BaseThrottle):
    """A token bucket per key and process.

    Its size and rate are `DEFAULT_THROTTLE_RATES["api_key"]`. DRF's own throttle stores and copies the time
    of every request of the period; this one two numbers.
    """

    clock = staticmethod(time.monotonic)
    _buckets: ClassVar[dict[int, tuple[float, float]]] = {}  # key id -> tokens left, at
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._wait: float | None = None

    def allow_request(self, request: Request, view: Any) -> bool:
        if request.auth is None:
            return True
        client = client_of(request)
        size, period = _parse_rate(api_settings.DEFAULT_THROTTLE_RATES["api_key"])
        per_second = size / period
        now = self.clock()
        with self._lock:
            tokens, at = self._buckets.get(client.key_id, (float(size), now))
            tokens = min(float(size), tokens + (now - at) * per_second)
            allowed = tokens >= 1
            self._buckets[client.key_id] = (tokens - 1 if allowed else tokens, now)
        if not allowed:
            self._wait = (1 - tokens) / per_second
            log.warning("api_throttled", key=client.name)
        return allowed

    def wait(self) -> float | None:
        return self._wait

    @classmethod
    def reset(cls) -> None:
        """Empty the buckets (tests)."""
        with cls._lock:
            cls._buckets.clear()
