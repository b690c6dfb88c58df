"""Keeps the leases of running work alive from a thread of the worker process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import structlog
from django.db import connection

from criticizer.queue import outbox

log = structlog.get_logger(__name__)

RETRIES = 10  # of a failed renewal within its period


class LeaseRenewer:
    """Renews leases every `RENEW_SECONDS` while anything is held.

    The thread starts with the first lease, after the fork, and has a database connection of
    its own. `renew` extends the given leases and returns those that still hold. A lease that
    could not be renewed is no reason to stop the work: recording the result is fenced by the
    same token and tells the truth.
    """

    def __init__(self, renew: Callable[[set[UUID]], set[UUID]]) -> None:
        self._renew = renew
        self._held: set[UUID] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._pid = 0

    @contextmanager
    def holding(self, token: UUID) -> Iterator[None]:
        """Renew the lease `token` for the duration of the block."""
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
            # A thread does not survive a fork; neither may its half of the state.
            self._pid = os.getpid()
            self._held = set()
            threading.Thread(target=self._run, name="lease-heartbeat", daemon=True).start()

    def _run(self) -> None:
        period = outbox.scaled(outbox.RENEW_SECONDS)
        seconds = period
        while True:
            self._wake.wait(seconds)
            with self._lock:
                held = set(self._held)
            if not held:
                continue
            try:
                renewed = self._renew(held)
            except Exception as error:  # noqa: BLE001  the thread must outlive any database trouble
                log.warning("lease_renewal_failed", error=type(error).__name__, leases=len(held))
                connection.close()
                # Leases are to be renewed before anybody takes those that ran out for dead.
                seconds = period / RETRIES
                continue
            seconds = period
            with self._lock:
                lost = (held & self._held) - renewed
            if lost:
                log.warning("lease_lost", leases=len(lost))
