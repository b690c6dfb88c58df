"""The maintenance (settings.MAINTENANCE): one function after another, in one cluster at a time.

    tend    every half minute, by the caretaker: begin a round, unless the last one is not over
    Round   a thread: takes the lock, calls the functions, closes what it has open

A function that hangs must not keep the lock for ever, nor keep the functions behind it waiting:

    1  after settings.MAINTENANCE_SECONDS its database session is ended: what hangs in a statement
       fails, and the round goes on
    2  what still hangs at the next look (a call outside, a lock of ours) is left to itself: the
       session that holds the lock is ended, and the next round, here or elsewhere, is a new thread
    3  the function is left out of this cluster's rounds, for as long as it was given and as long
       as its thread lives; heartbeat and /readyz name it

A thread that was left to itself and goes on after all finds its lock lost, and ends.
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

_TAKE = f"SELECT taken.got, pg_backend_pid() AS pid FROM ({advisory_locks.TRY}) taken"  # noqa: S608
# By its number, and nobody's who has been given that number since.
_END_SESSION = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE pid = %(pid)s AND datname = current_database() AND usename = current_user"""


class MaintenanceRun(threading.Thread):
    """Calls the functions of the maintenance once, if no other cluster is at it.

    The lock is held beside the connection of the functions: they may lose or close theirs.
    """

    def __init__(self, connect: Connect, left_out: Collection[str] = ()) -> None:
        super().__init__(name="sweep", daemon=True)
        self.function = __name__  # that is called now; before the first one, taking the lock
        self.since = time.monotonic()  # when it was
        self._connect = connect
        self._left_out = frozenset(left_out)
        self._lock_pid = 0
        self._functions: BaseDatabaseWrapper | None = None

    def run(self) -> None:
        self._functions = connections["default"]  # this thread's own
        try:
            with self._connect() as own:
                got = own.execute(_TAKE, {"lock": Lock.SWEEP.value}).fetchone()
                if not got or not got["got"]:
                    return
                self._lock_pid = got["pid"]
                for path in settings.MAINTENANCE:
                    if path not in self._left_out:
                        own.execute("SELECT 1")  # raises when the connection was lost, and with it the lock
                        self._call(path)
        except psycopg.Error as error:
            log.warning("sweep_database", error=type(error).__name__)
            reconnect.note_loss()
        finally:
            self._functions.close()

    def _call(self, path: str) -> None:
        """Call one function; whatever is wrong with it is not wrong with the others."""
        self.since, self.function = time.monotonic(), path
        try:
            import_string(path)()
        except Exception:
            log.exception("maintenance_failed", function=path)
            connections["default"].close()  # the next function connects anew

    def end_statement(self, connection: Connection) -> None:
        """End the database session of the function, so that a statement that it waits for fails."""
        session = self._functions.connection if self._functions is not None else None
        if session is not None:
            connection.execute(_END_SESSION, {"pid": session.info.backend_pid})

    def end_lock(self, connection: Connection) -> None:
        """End the session that holds the lock of the maintenance, whatever the thread does."""
        connection.execute(_END_SESSION, {"pid": self._lock_pid})


class Maintenance:
    """The rounds of one cluster."""

    def __init__(self, queue: str, connect: Connect) -> None:
        self.queue = queue
        self._connect = connect
        self._round: MaintenanceRun | None = None
        self._cut: tuple[str, float] | None = None  # the call whose session was ended
        self._abandoned: list[MaintenanceRun] = []
        self._paused: dict[str, float] = {}  # function -> until when it is left out, monotonic

    def tick(self, connection: Connection) -> None:
        """Begin a round unless the last one is not over; cut that one short if it hangs."""
        if self._round is not None and self._round.is_alive():
            log.warning("sweep_still_runs", queue=self.queue, function=self._round.function)
            if not self._is_given_up(self._round, connection):
                return
        self._round = MaintenanceRun(self._connect, self.skipped())
        self._round.start()

    def skipped(self) -> list[str]:
        """Return the functions that this cluster does not call now, because they hung."""
        now = time.monotonic()
        self._abandoned = [one for one in self._abandoned if one.is_alive()]
        self._paused = {path: until for path, until in self._paused.items() if until > now}
        return sorted({*self._paused, *(one.function for one in self._abandoned)})

    def _is_given_up(self, running: MaintenanceRun, connection: Connection) -> bool:
        """Cut a call short that takes too long, in two steps; say whether its thread was left to itself."""
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
