"""The django-q2 broker over the outbox.

`dequeue` leases due rows and returns django-q2 tasks that carry only ids. It waits on LISTEN and on
a timer for the next due row, one second at most, so a retry starts within milliseconds of its time
and a lost notification costs a second. It never raises: an exception would end django-q2's pusher
and cost ten seconds. Nothing is acknowledged: a stage deletes its row in its own commit.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import nullcontext
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import connections
from django.utils import timezone
from django_q.brokers import Broker
from django_q.signing import SignedPackage
from psycopg.rows import dict_row

from criticizer.db import reconnect
from criticizer.queue import outbox
from criticizer.workers.watchdog import Watchdog

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
_DUE = """
SELECT true FROM outbox_messages
 WHERE queue = %(queue)s AND available_at <= now() AND (lease_token IS NULL OR %(rescue)s) LIMIT 1"""
_Task = tuple[None, str]


def connect() -> psycopg.Connection[dict[str, Any]]:
    """Open a connection with autocommit, apart from Django's connection of this thread."""
    parameters = connections["default"].get_connection_params()
    for name in ("cursor_factory", "context", "prepare_threshold", "client_encoding"):
        parameters.pop(name, None)
    connection = psycopg.connect(**{**parameters, "autocommit": True}, row_factory=dict_row)
    connection.execute(outbox.BY_INDEX)
    return connection


class OutboxBroker(Broker):  # type: ignore[misc]
    """Broker that claims messages of one queue, which the cluster names (`list_key`)."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self._connection: psycopg.Connection[dict[str, Any]] | None = None
        self._watchdog: Watchdog | None = None
        self._pid = 0

    def __getstate__(self) -> tuple[str, Any]:
        return self.list_key, self._info

    def dequeue(self) -> list[_Task]:
        """Return leased work as signed django-q2 tasks, or [] after at most a second."""
        try:
            self._after_fork()
            if self._is_draining():
                time.sleep(POLL_SECONDS)
                return []
            tasks = self._take()
            if not tasks:
                self._wait()
                tasks = self._take()
        except Exception as error:  # noqa: BLE001  an exception would end the pusher
            log.warning("dequeue_failed", queue=self.list_key, error=type(error).__name__)
            if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
                reconnect.note_loss()
            self._disconnect()
            time.sleep(0.1)
            return []
        return tasks

    def _after_fork(self) -> None:
        """Connect and start the watchdog in the pusher, after the fork."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._connection = None  # closing it would end the parent's session
            self._watchdog = Watchdog(self.list_key, connect)
            self._watchdog.start()

    def _open(self) -> psycopg.Connection[dict[str, Any]]:
        if self._connection is None:
            connection = connect()
            # A claim may be lost in a crash of the server: the row is due again.
            connection.execute("SET synchronous_commit = off")
            connection.execute(f'LISTEN "{outbox.channel(self.list_key)}"')
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _take(self) -> list[_Task]:
        if self.list_key in settings.DRIVEN_QUEUES:
            due = self._open().execute(_DUE, self._asked(), prepare=True).fetchone()
            return [self._task(settings.TASKS["drive"], (self.list_key,))] if due else []
        with self._watchdog.claiming if self._watchdog else nullcontext():
            if self._is_draining():
                return []
            claimed = outbox.claim(self.list_key, settings.CLAIM_BATCH, self._rows)
            if claimed and self._watchdog:
                self._watchdog.watch(message.lease_token for message in claimed)
        return [
            self._task(
                settings.TASKS[message.message_type],
                (message.id, message.aggregate_id, str(message.lease_token)),
            )
            for message in claimed
        ]

    def _is_draining(self) -> bool:
        return self._watchdog is not None and self._watchdog.is_draining

    def _rows(self, sql: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        return self._open().execute(sql.encode(), parameters, prepare=True).fetchall()

    def _wait(self) -> None:
        connection = self._open()
        row = connection.execute(outbox.NEXT_DUE, self._asked(), prepare=True).fetchone()
        seconds = POLL_SECONDS if row is None else min(POLL_SECONDS, row["seconds"])
        if seconds > 0:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass

    def _asked(self) -> dict[str, Any]:
        return {"queue": self.list_key, "rescue": outbox.may_rescue()}

    @staticmethod
    def _task(function: str, arguments: tuple[Any, ...]) -> _Task:
        task = {
            "id": uuid.uuid4().hex,
            "name": function,
            "func": function,
            "args": arguments,
            "kwargs": {},
            "started": timezone.now(),
        }
        return None, SignedPackage.dumps(task)

    # -- the rest of django-q2's broker interface -----------------------------------------------

    def enqueue(self, task: str) -> None:
        raise NotImplementedError("queue work with criticizer.queue.outbox.publish, not with async_task")

    def ping(self) -> bool:
        return True  # a cluster that starts before its database waits for it

    def info(self) -> str:
        return "PostgreSQL outbox"

    def queue_size(self) -> int:
        return 0  # /metrics counts the outbox itself

    def acknowledge(self, task_id: object) -> None:
        """Do nothing: the stage deleted its row in its own commit."""

    def fail(self, task_id: object) -> None:
        """Do nothing: the lease runs out and the row is due again."""
