"""Watchdog of a worker cluster: a thread in the cluster's pusher.

It writes the cluster's heartbeat, ends the cluster when its parent is gone or when it is wedged
(django-q2's workers share one lock; SIGKILL of the worker that holds it stops the rest for ever),
and starts the maintenance and the health checks, each in a thread of its own, so that neither delays
the heartbeat. It uses no multiprocessing lock and has its own database connection.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from importlib import metadata
from typing import Any

import psycopg
import structlog
from django.conf import settings
from django.db import connections
from psycopg.types.json import Jsonb

from criticizer.db import reconnect
from criticizer.environment import CODE_DIR, IS_CHECKOUT
from criticizer.queue import outbox
from criticizer.resilience import health_checks
from criticizer.resilience.failures import Failure
from criticizer.workers import subprocesses
from criticizer.workers.maintenance import Connect, Maintenance

log = structlog.get_logger(__name__)

BEAT_SECONDS = 3.0
SWEEP_SECONDS = 30.0
TICK_SECONDS = 0.5
# So long after the loss of a database elsewhere no cluster is wedged: each worker finds its own connection
# dead, at a timeout of the network (settings.DATABASE_CONNECTION), which RETRY_TIME_SCALE does not shorten.
LOSS_SECONDS = 10.0

# One identity for all processes of a cluster: set before the fork.
CLUSTER_ID = uuid.uuid4()

_BEAT = """
INSERT INTO worker_clusters (id, queue, host, version, pid, workers, hanging)
VALUES (%(id)s, %(queue)s, %(host)s, %(version)s, %(pid)s, %(workers)s, %(hanging)s)
ON CONFLICT (id) DO UPDATE SET beat_at = now(), hanging = excluded.hanging
RETURNING draining"""
_FORGET_DEAD = "DELETE FROM worker_clusters WHERE beat_at < now() - interval '1 hour'"
_WATCHED = """
SELECT lease_token, started_at IS NOT NULL AS started
  FROM outbox_messages WHERE lease_token = ANY(%(tokens)s)"""
# A driven queue has one task that claims its messages itself: it is wedged when messages are due
# and none is being worked on.
_DRIVEN_STALLED = """
SELECT EXISTS (SELECT 1 FROM outbox_messages WHERE queue = %(queue)s
                  AND available_at <= now() - make_interval(secs => %(stall)s))
   AND NOT EXISTS (SELECT 1 FROM outbox_messages WHERE queue = %(queue)s
                  AND started_at IS NOT NULL AND available_at > now()) AS stalled"""


class Watchdog:
    """Watches one cluster from inside its pusher."""

    def __init__(self, queue: str, connect: Connect) -> None:
        self.queue = queue
        self.workers = worker_count(queue)
        self._connect = connect
        self._connection: psycopg.Connection[dict[str, Any]] | None = None
        self._parent = os.getppid()
        self._lock = threading.Lock()
        self._watched: dict[uuid.UUID, bool] = {}  # claimed by us -> seen started
        self._progress_at = self._busy_since = time.monotonic()
        self._maintenance = Maintenance(queue, connect)
        self.is_draining = False  # `manage.py drain` says so in the cluster's row
        self.claiming = threading.Lock()  # held from looking at `is_draining` until claims are watched
        self._due = {self._beat: 0.0, self._sweep: time.monotonic() + SWEEP_SECONDS / 2}

    def start(self) -> None:
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()
        health_checks.start()

    def watch(self, tokens: Iterable[uuid.UUID]) -> None:
        """Expect the claims `tokens` to be started by a worker of this cluster."""
        with self._lock:
            if not self._watched:
                self._progress_at = time.monotonic()
            self._watched.update(dict.fromkeys(tokens, False))

    def _run(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            if os.getppid() != self._parent:
                end_cluster("orphaned", self.queue)
            try:
                self._tick()
            except psycopg.Error as error:
                log.warning("caretaker_database", queue=self.queue, error=type(error).__name__)
                reconnect.note_loss()
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                self._due[self._beat] = 0.0  # it may be the one that failed

    def _tick(self) -> None:
        if self._connection is None:
            self._connection = self._connect()
        now = time.monotonic()
        for job, period in ((self._beat, BEAT_SECONDS), (self._sweep, SWEEP_SECONDS)):
            if now >= self._due[job]:
                self._due[job] = now + period
                job(self._connection)
        if self.is_draining or reconnect.seconds_since_loss() < loss_seconds():
            self._progress_at = now  # a cluster that takes nothing, or lost its database, is not wedged
        elif self._is_wedged(self._connection):
            if time.monotonic() - now > stall_seconds() / 2:
                reconnect.note_loss()  # the statement waited for the network, and so did the workers
                return
            self._give_back(self._connection)
            end_cluster("wedged", self.queue)

    def _beat(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        hanging = Jsonb(self._maintenance.skipped())
        cluster = {"id": CLUSTER_ID, "hanging": hanging, **described(self.queue, self._parent)}
        # `drain` waits for this beat: what had not begun is given back in the same commit.
        with connection.transaction():
            row = connection.execute(_BEAT, cluster).fetchone()
            is_draining = bool(row and row["draining"])
            with self.claiming if is_draining else nullcontext():
                self.is_draining = is_draining
            if is_draining:
                self._give_back(connection)

    def _sweep(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        """Start the maintenance; a lost message costs half a minute."""
        connection.execute(_FORGET_DEAD)
        self._maintenance.tick(connection)

    def _is_wedged(self, connection: psycopg.Connection[dict[str, Any]]) -> bool:
        """Return whether work is claimed (or due) without progress while a worker is free."""
        stall = stall_seconds()
        if self.queue in settings.DRIVEN_QUEUES:
            row = connection.execute(_DRIVEN_STALLED, {"queue": self.queue, "stall": stall}).fetchone()
            if not (row and row["stalled"]):
                self._progress_at = time.monotonic()
        else:
            with self._lock:
                tokens = list(self._watched)
            found = connection.execute(_WATCHED, {"tokens": tokens}).fetchall() if tokens else []
            if self._note_progress({row["lease_token"]: row["started"] for row in found}, tokens):
                self._progress_at = time.monotonic()
            if time.monotonic() - self._busy_since > outbox.YIELD_SECONDS:
                connection.execute(outbox.RELEASE, {"tokens": tokens})  # those that did not start
        return time.monotonic() - self._progress_at > stall

    def _note_progress(self, now_started: dict[uuid.UUID, bool], tokens: list[uuid.UUID]) -> bool:
        """Update the watched claims; return whether one progressed or every worker is busy."""
        has_progress = False
        with self._lock:
            for token in tokens:
                started = now_started.get(token)
                if started is None:
                    del self._watched[token]  # finished, or its lease ran out
                    has_progress = True
                elif started and not self._watched[token]:
                    self._watched[token] = True
                    has_progress = True
            busy = sum(self._watched.values())
            waiting = len(self._watched) - busy
            if has_progress or waiting == 0 or busy < self.workers:
                self._busy_since = time.monotonic()
        return has_progress or waiting == 0 or busy >= self.workers

    def _give_back(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        with self._lock:
            tokens = list(self._watched)
        connection.execute(outbox.RELEASE, {"tokens": tokens})


def stall_seconds() -> float:
    """Return how long claimed work may wait without progress before its cluster is wedged."""
    return max(outbox.scaled(outbox.STALL_SECONDS), 2.0)


def loss_seconds() -> float:
    """Return how long after a database loss workers that start nothing are not wedged.

    The sockets of a server on this machine close with it: its clients know at once, and a cluster that stands
    still has another reason, such as a worker that was killed in the outage.
    """
    is_local = str(connections["default"].settings_dict["HOST"]).startswith("/")
    return stall_seconds() if is_local else LOSS_SECONDS


def this_host() -> str:
    """Return this machine's name, as the rows of clusters and attempts hold it."""
    return socket.gethostname()[:255]


@cache
def running_version() -> str:
    """Return the version of the code that this process runs.

    It is a package's version, or a checkout's commit. Call it first before the code on the disk can change.
    """
    git = shutil.which("git")
    if IS_CHECKOUT and git:
        with contextlib.suppress(Failure):
            done = subprocesses.run(
                [git, "-C", str(CODE_DIR), "describe", "--always", "--dirty", "--abbrev=10"],
                environment={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/"},
                timeout_seconds=5,
            )
            if done.exit_code == 0 and not done.timed_out:
                return done.text.strip()[:64]
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("criticizer")[:64]
    return ""


def described(queue: str, pid: int) -> dict[str, Any]:
    """Return the contents of this cluster's row.

    `pid` is the process that all others come from.
    """
    return {
        "queue": queue,
        "host": this_host(),
        "version": running_version(),
        "pid": pid,
        "workers": worker_count(queue),
    }


def worker_count(queue: str) -> int:
    """Return how many worker processes the cluster of `queue` has (settings.Q_CLUSTER)."""
    common: dict[str, Any] = settings.Q_CLUSTER
    configured = {**common, **common["ALT_CLUSTERS"].get(queue, {})}
    return int(configured["workers"])


def end_cluster(reason: str, queue: str) -> None:
    """End every process of this cluster with SIGKILL; the supervisor starts a new one.

    A wedged process reacts to nothing else, and every stage survives SIGKILL by design.
    """
    log.critical("cluster_ended", reason=reason, queue=queue)
    if os.environ.get("CRITICIZER_CLUSTER_GROUP") == str(os.getpgrp()):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    if os.getppid() > 1 and reason != "orphaned":
        os.kill(os.getppid(), signal.SIGKILL)  # the sentinel; its children die with it
    os._exit(1)
