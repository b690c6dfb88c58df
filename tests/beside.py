"""A second connection, and work on one: to test what waits for a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection

from criticizer.db import prepared


def session() -> psycopg.Connection[Any]:
    """Open another session on the test's database; its first statement begins a transaction."""
    return psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": None, "context": None})


class Beside(threading.Thread):
    """A thread that works on a connection of its own; `result` is what it returned or raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work
        self.result: Any = None
        self.pid = 0
        self._has_connected = threading.Event()
        self.start()
        self._has_connected.wait(30)

    def run(self) -> None:
        try:
            self.pid = prepared.value("SELECT pg_backend_pid()")
            self._has_connected.set()
            self.result = self._work()
        except Exception as error:  # noqa: BLE001  asserted on by the caller
            self.result = error
        finally:
            self._has_connected.set()
            connection.close()

    def is_blocked(self) -> bool:
        """Wait until the thread waits for a lock, or has ended; return whether it waits."""
        while self.is_alive():
            if prepared.value("SELECT cardinality(pg_blocking_pids(%(pid)s)) > 0", {"pid": self.pid}):
                return True
        return False
