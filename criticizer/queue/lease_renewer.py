"""Lease renewer: a thread of the worker process that renews the leases of running work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import structlog
from django.db import connection

from criticizer.queue import outbox

log = structlog.get_logger(__name__)

RETRIES = 10  # of a failed renewal within its period


class LeaseRenewer:
    """Renews leases every `RENEW_SECONDS` while there are any.

    The thread starts with the first lease, after the fork, and has its own database connection.
    `renew` extends the given leases and returns those that are still held. Work continues when its
    lease could not be renewed: recording the result is fenced by the same token.
    """

    def __init__(self, renew: Callable[[set[UUID]], set[UUID]]) -> None:
        self._renew = renew
        self._held: set[UUID] = set()
        self._lock = threading.Lock()
        self._pid = 0

    @contextmanager
    def holding(self, token: UUID) -> Iterator[None]:
        """Renew the lease `token` while the block runs."""
        self._ensure_thread()
        with self._lock:
            self._held.add(token)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(token)

    def _ensure_thread(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                return
            # A thread does not survive a fork; its state must not either.
            self._pid = os.getpid()
            self._held = set()
            threading.Thread(target=self._run, name="lease-renewer", daemon=True).start()

    def _run(self) -> None:
        period = outbox.scaled(outbox.RENEW_SECONDS)
        seconds = period
        while True:
            time.sleep(seconds)
            with self._lock:
                held = set(self._held)
            if not held:
                continue
            try:
                renewed = self._renew(held)
            except Exception as error:  # noqa: BLE001  the thread must outlive any database trouble
                log.warning("lease_renewal_failed", error=type(error).__name__, leases=len(held))
                connection.close()
                # Renew before another process rescues work whose lease ran out.
                seconds = period / RETRIES
                continue
            seconds = period
            with self._lock:
                lost = (held & self._held) - renewed
            if lost:
                log.warning("lease_lost", leases=len(lost))
