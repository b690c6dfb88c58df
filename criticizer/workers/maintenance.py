"""Periodic maintenance (settings.MAINTENANCE): one run at a time, in one cluster at a time.

The watchdog calls `Maintenance.tick` every half minute. A function that hangs must not hold the
lock for ever, nor delay the functions after it:

    1  after settings.MAINTENANCE_SECONDS its database session is ended: a statement that hangs
       fails, and the run continues
    2  a run that still hangs at the next tick (in a call outside, in a lock) is abandoned: the
       session that holds the lock is ended, and the next run, here or elsewhere, is a new thread
    3  this cluster skips the function for another MAINTENANCE_SECONDS, and while its thread lives;
       the cluster's row and /readyz name it

An abandoned thread that continues finds its lock lost, and ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from criticizer.db import reconnect
from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock

log = structlog.get_logger(__name__)

Connection = psycopg.Connection[dict[str, Any]]
Connect = Callable[[], Connection]

# Match the database and user too: the pid may have been reused.
_END_SESSION = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE pid = %(pid)s AND datname = current_database() AND usename = current_user"""


class MaintenanceRun(threading.Thread):
    """Calls the functions once, unless another cluster does.

    Another connection than that of the functions holds the lock: they may lose or close theirs.
    """

    def __init__(self, connect: Connect, skipped: Collection[str] = ()) -> None:
        super().__init__(name="sweep", daemon=True)
        self.function = __name__  # called now; at first, taking the lock
        self.since = time.monotonic()
        self._connect = connect
        self._skipped = frozenset(skipped)
        self._lock_pid = 0
        self._functions: BaseDatabaseWrapper | None = None

    def run(self) -> None:
        self._functions = connections["default"]  # this thread's own
        try:
            with self._connect() as own:
                got = own.execute(advisory_locks.TRY, {"lock": Lock.SWEEP.value}).fetchone()
                if not got or not got["got"]:
                    return
                self._lock_pid = got["pid"]
                for path in settings.MAINTENANCE:
                    if path not in self._skipped:
                        own.execute("SELECT 1")  # raises when the connection was lost, and with it the lock
                        self._call(path)
        except psycopg.Error as error:
            log.warning("sweep_database", error=type(error).__name__)
            reconnect.note_loss()
        finally:
            self._functions.close()

    def _call(self, path: str) -> None:
        self.since, self.function = time.monotonic(), path
        try:
            import_string(path)()
        except Exception:
            log.exception("maintenance_failed", function=path)
            connections["default"].close()  # the next function gets a new connection

    def end_statement(self, connection: Connection) -> None:
        """End the database session of the function, so that its statement fails."""
        session = self._functions.connection if self._functions is not None else None
        if session is not None:
            connection.execute(_END_SESSION, {"pid": session.info.backend_pid})

    def end_lock(self, connection: Connection) -> None:
        """End the session that holds the lock."""
        connection.execute(_END_SESSION, {"pid": self._lock_pid})


class Maintenance:
    """The maintenance runs of one cluster."""

    def __init__(self, queue: str, connect: Connect) -> None:
        self.queue = queue
        self._connect = connect
        self._run: MaintenanceRun | None = None
        self._cut: tuple[str, float] | None = None  # the call whose session was ended
        self._abandoned: list[MaintenanceRun] = []
        self._paused: dict[str, float] = {}  # function -> until when to skip it, monotonic

    def tick(self, connection: Connection) -> None:
        """Start a run, unless the last one still runs; end that one if it hangs."""
        if self._run is not None and self._run.is_alive():
            log.warning("sweep_still_runs", queue=self.queue, function=self._run.function)
            if not self._is_abandoned(self._run, connection):
                return
        self._run = MaintenanceRun(self._connect, self.skipped())
        self._run.start()

    def skipped(self) -> list[str]:
        """Return the functions that this cluster skips because they hung."""
        now = time.monotonic()
        self._abandoned = [one for one in self._abandoned if one.is_alive()]
        self._paused = {path: until for path, until in self._paused.items() if until > now}
        return sorted({*self._paused, *(one.function for one in self._abandoned)})

    def _is_abandoned(self, running: MaintenanceRun, connection: Connection) -> bool:
        """End a call that takes too long, in two steps; return whether its thread was abandoned."""
        call = (running.function, running.since)
        seconds = time.monotonic() - running.since
        if seconds <= settings.MAINTENANCE_SECONDS:
            return False
        self._paused[running.function] = time.monotonic() + settings.MAINTENANCE_SECONDS
        if self._cut != call:
            self._cut = call
            log.error("maintenance_hangs", function=running.function, seconds=round(seconds))
            running.end_statement(connection)
            return False
        log.critical("maintenance_abandoned", function=running.function, seconds=round(seconds))
        running.end_lock(connection)
        self._abandoned.append(running)
        return True
