"""Runner of many stages of one queue at once with asyncio, hundreds of calls in flight.

One process per waiting model call costs about a hundred times the memory. django-q2 gives a worker one task,
the driver; it claims due rows, refills as stages finish, and returns when nothing is left, when its slice is
over, or when its cluster is draining.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from criticizer.db import prepared, reconnect
from criticizer.queue import outbox
from criticizer.workers import watchdog
from reviews import pipeline
from reviews.pipeline import Due, StageClaim
from reviews.pipeline.base import statement
from reviews.pipeline.executor import (
    LEASE_RENEWER,
    StageFunction,
    Written,
    in_log,
    record,
    settle,
    stage_function,
    with_reconnect,
    worker_name,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")

SLICE_SECONDS = 600.0  # then the task returns, so that django-q2 can recycle the worker
POLL_SECONDS = 0.1  # between queries for new work while stages are running
# How long a thread keeps the interpreter when others want it. Each database call of a stage waits for
# it in the end; Python's default of 5 ms is longer than the call.
_SWITCH_SECONDS = 0.002
DRAIN_SECONDS = 20.0  # for calls in flight to finish at a clean shutdown
_DATABASE_THREADS = 4
# Stages begun at once. If all began at once, the first call to the model would wait until the last
# change is prepared, and all answers would come together.
_BATCH = 16
_DRAINING = "SELECT draining FROM worker_clusters WHERE id = %(id)s"

# By process: threads for database work and text work, each with its own connection; one for long work.
_pools: dict[int, ThreadPoolExecutor] = {}
_lone_threads: dict[int, ThreadPoolExecutor] = {}


def _of_this_process(pools: dict[int, ThreadPoolExecutor], threads: int) -> ThreadPoolExecutor:
    pid = os.getpid()
    if pid not in pools:
        pools.clear()  # a parent's threads do not survive the fork
        pools[pid] = ThreadPoolExecutor(threads, thread_name_prefix="driver")
    return pools[pid]


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work (PostgreSQL, files) in a thread of the pool."""
    pool = _of_this_process(_pools, _DATABASE_THREADS)
    return await asyncio.get_running_loop().run_in_executor(pool, _without_dead_connection, work)


async def in_database(work: Callable[[], T]) -> T:
    """Run database work that may be repeated in a thread of the pool, across a lost connection."""
    return await in_thread(lambda: with_reconnect(work))


async def in_lone_thread(work: Callable[[], T]) -> T:
    """Run work that may take minutes, one after another.

    So the pool stays free for other stages.
    """
    thread = _of_this_process(_lone_threads, 1)
    return await asyncio.get_running_loop().run_in_executor(thread, _with_own_connection, work)


def _with_own_connection(work: Callable[[], T]) -> T:
    try:
        return work()
    finally:
        connection.close()  # rarely used


def _without_dead_connection(work: Callable[[], T]) -> T:
    """Run `work`; close the connection of this thread if it was lost.

    So the next call reconnects. django-q2 does this for the main thread only.
    """
    try:
        return work()
    except (OperationalError, InterfaceError):
        connection.close()
        raise


def drive(queue: str) -> None:
    """Run the stages of `queue` until there is nothing left to do. Never raises."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        asyncio.run(Driver(queue, settings.LLM_MAX_CONCURRENCY).run())
    except Exception:
        # Running stages lose their leases and are repeated within their budgets.
        log.exception("driver_failed", queue=queue)


class Driver:
    """One slice of running stages, at most `capacity` at once."""

    def __init__(self, queue: str, capacity: int) -> None:
        self.queue = queue
        self.capacity = capacity
        self._running: set[asyncio.Task[None]] = set()
        self._is_idle = asyncio.Event()
        self._works: set[asyncio.Task[Written]] = set()  # the part of each stage that may be cancelled
        self._is_giving_back = False
        self._suspects: deque[Due] = deque()
        self._until = time.monotonic() + SLICE_SECONDS
        self._drain_until: float | None = None

    async def run(self) -> None:
        while True:
            await self._note_draining()
            may_be_more = not self._is_ending() and not self._suspects and await self._refill()
            if self._suspects and not self._running and not self._is_ending():
                self._start(self._suspects.popleft())
            if not self._running:
                break
            if not may_be_more:
                # By the clock: a query for every stage that ends would cost more than the stages.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_idle.wait(), POLL_SECONDS)
            if self._drain_until is not None and time.monotonic() > self._drain_until:
                self._give_back_works()
        if self._suspects:
            tokens = [due.token for due in self._suspects]
            await in_thread(lambda: outbox.release(tokens))

    def _give_back_works(self) -> None:
        """Cancel the running calls, once. Claims and records are short and always finish."""
        if not self._is_giving_back:
            self._is_giving_back = True
            for work in self._works:
                work.cancel()

    def _is_ending(self) -> bool:
        return self._drain_until is not None or time.monotonic() > self._until

    async def _note_draining(self) -> None:
        if self._drain_until is None and await in_thread(_is_draining):
            self._drain_until = time.monotonic() + outbox.scaled(DRAIN_SECONDS)

    async def _refill(self) -> bool:
        """Begin a batch of due stages; return whether there may be more."""
        limit = min(_BATCH, self.capacity - len(self._running))
        if limit < 1:
            return False
        claimed = await in_database(lambda: outbox.claim(self.queue, limit))
        if not claimed:
            return False
        ids = [message.aggregate_id for message in claimed]
        lost = await in_database(lambda: _lost_their_worker(ids))
        for message in claimed:
            due = Due(message.id, message.aggregate_id, message.lease_token)
            # A stage that lost its worker twice may be killing workers: it runs alone.
            if message.aggregate_id in lost:
                self._suspects.append(due)
            else:
                self._start(due)
        return len(claimed) == limit

    def _start(self, due: Due) -> None:
        task = asyncio.create_task(self._run_one(due))
        self._running.add(task)
        self._is_idle.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not self._running:
            self._is_idle.set()

    async def _run_one(self, due: Due) -> None:
        # The lease is renewed to the end: recording may have to wait for a lost database.
        with LEASE_RENEWER.holding(due.token):
            claim = None
            try:
                claim = await in_database(lambda: pipeline.claim(due, worker_name(), shared=True))
                if claim is not None:
                    await self._work_and_record(claim)
            except Exception as error:  # noqa: BLE001  every failure of a stage is settled
                failed, failure = claim, error
                await in_thread(lambda: settle(due, failed, failure))

    async def _work_and_record(self, claim: StageClaim) -> None:
        try:
            write = await self._work(claim)
            await in_thread(lambda: record(claim, write))
        except asyncio.CancelledError:
            # Only the work was cancelled, not this task. A failure here is not one of the stage: its lease
            # expires, and the stage is repeated.
            try:
                await in_database(lambda: pipeline.give_back(claim))
            except Exception:
                log.exception("stage_not_recorded", stage_run=claim.stage_run_id)
            else:
                log.info("attempt_given_back", job=claim.job_id, stage=claim.stage.value)

    async def _work(self, claim: StageClaim) -> Written:
        if self._is_giving_back:
            raise asyncio.CancelledError
        work = asyncio.create_task(_called(stage_function(claim.stage), claim))
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        return await work


async def _called(function: StageFunction, claim: StageClaim) -> Written:
    with in_log(claim):
        if asyncio.iscoroutinefunction(function):
            return cast("Written", await function(claim))
        return await in_thread(lambda: cast("Written", function(claim)))


def _is_draining() -> bool:
    """Return whether this cluster may begin nothing new. A lost database does not stop it."""
    try:
        return bool(prepared.value(_DRAINING, {"id": watchdog.CLUSTER_ID}))
    except (DatabaseError, InterfaceError):
        reconnect.note_loss()
        connection.close()
        return False


def _lost_their_worker(stage_runs: list[int]) -> set[int]:
    """Return those that lose their worker now and have lost one before."""
    found = prepared.rows(
        statement("""
        SELECT id FROM stage_runs s WHERE id = ANY(%(ids)s) AND status = 'running'
           AND EXISTS (SELECT FROM attempts a WHERE $LOST_WORKER)"""),
        {"ids": stage_runs},
    )
    return {row["id"] for row in found}
