"""Run of one stage: claim, work, record. The work has no open transaction (guarantee G12).

A stage is a function `run(claim) -> Written | None`, plain or `async`. It returns a function that stores its
result inside the recording commit, or None. It raises a `criticizer.resilience.failures.Failure`; anything
else is `INTERNAL_BUG`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.utils.module_loading import import_string

from criticizer.db import prepared, reconnect
from criticizer.queue import outbox
from criticizer.queue.lease_renewer import LeaseRenewer
from criticizer.redaction import clean_stack
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass, Failure
from criticizer.resilience.retry import CONNECTION
from reviews import pipeline
from reviews.pipeline import Due, LostLease, StageClaim

log = structlog.get_logger(__name__)
T = TypeVar("T")

Written = Callable[[], None] | None
StageFunction = Callable[[StageClaim], Written] | Callable[[StageClaim], Coroutine[Any, Any, Written]]

# A locked row is being recorded: waiting for it could only deadlock.
_RENEW = """
WITH held AS (
  UPDATE outbox_messages SET available_at = now() + make_interval(secs => %(lease)s)
   WHERE id IN (SELECT id FROM outbox_messages WHERE lease_token = ANY(%(tokens)s)
                 ORDER BY id FOR UPDATE SKIP LOCKED)
  RETURNING lease_token),
stages AS (
  UPDATE stage_runs SET lease_expires_at = now() + make_interval(secs => %(lease)s)
    FROM held WHERE stage_runs.lease_token = held.lease_token)
SELECT lease_token FROM held"""


def renew(tokens: set[UUID]) -> set[UUID]:
    """Extend the leases of running work; return the tokens that still hold one."""
    found = prepared.rows(_RENEW, {"tokens": list(tokens), "lease": outbox.scaled(outbox.LEASE_SECONDS)})
    return {row["lease_token"] for row in found}


LEASE_RENEWER = LeaseRenewer(renew)


def with_reconnect(work: Callable[[], T]) -> T:
    """Run a claim or a record across a lost database connection.

    Both are fenced, so repeatable. Retries follow the profile CONNECTION, for minutes in all. After that the
    lease decides.
    """
    return reconnect.with_retries(work, waits=map(outbox.scaled, CONNECTION.waits()))


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@cache
def _imported(path: str) -> StageFunction:
    function: StageFunction = import_string(path)
    return function


def stage_function(stage: str) -> StageFunction:
    """Return the function of `stage` (settings.STAGES)."""
    stages: Mapping[str, tuple[str, str]] = settings.STAGES
    return _imported(stages[stage][0])


def run_stage(outbox_id: int, stage_run_id: int, token: UUID) -> None:
    """Run a leased stage, and the stages after it that share its queue. The django-q2 task.

    Never raises: django-q2 would redeliver by its own schedule. A duplicate logs `claim_refused` and
    returns.
    """
    due: Due | None = Due(outbox_id, stage_run_id, token)
    while due is not None:
        # The lease is renewed to the end: recording may have to wait for a lost database.
        with LEASE_RENEWER.holding(due.token), outbox.working_on(due.outbox_id):
            due = _claim_work_record(due)


def _claim_work_record(due: Due) -> Due | None:
    claim = None
    try:
        claim = with_reconnect(lambda: pipeline.claim(due, worker_name()))
        if claim is None:
            return None
        outbox.note_flow(claim.flow)
        write = _work(claim)

        return record(claim, write, inline=True)
    except Exception as error:  # noqa: BLE001  every failure of a stage ends here
        settle(due, claim, error)
    return None


def _work(claim: StageClaim) -> Written:
    with in_log(claim):
        outcome = stage_function(claim.stage)(claim)
        return asyncio.run(outcome) if isinstance(outcome, Coroutine) else outcome


def in_log(claim: StageClaim) -> AbstractContextManager[None]:
    """Name the job, stage and attempt in every line that is logged in the block."""
    facts = {"job": claim.job_id, "stage": claim.stage.value, "attempt": claim.attempt}
    return structlog.contextvars.bound_contextvars(**facts)


def record(claim: StageClaim, write: Written, *, inline: bool = False) -> Due | None:
    """Record a result, across a lost connection; store it also when its job has ended.

    Raises LostLease when another worker has the stage or the job has ended.
    """
    try:
        return with_reconnect(lambda: pipeline.record(claim, write, inline=inline))
    except LostLease:
        with_reconnect(lambda: pipeline.record_after_end(claim, write))
        raise


def settle(due: Due, claim: StageClaim | None, error: Exception) -> None:
    """Record why an attempt ended without a result, across a lost connection. Never raises.

    A result that the database refuses is a failure of the stage too, not a lost worker. Where nothing
    can be recorded, the lease expires and the stage is repeated within its budget.
    """
    if isinstance(error, LostLease):
        log.warning("lease_lost", stage_run=due.stage_run_id)
        return
    if claim is None:
        log.error("stage_not_recorded", stage_run=due.stage_run_id, exc_info=error)
        return
    is_waiting = isinstance(error, DependencyUnavailable)
    try:
        if isinstance(error, DependencyUnavailable):
            _settle_waiting(claim, error)
        else:
            _settle_failure(claim, classify(error), clean_stack(error))
    except LostLease:
        log.warning("lease_lost", stage_run=due.stage_run_id)
    except Exception:
        event = "waiting_not_recorded" if is_waiting else "failure_not_recorded"
        log.exception(event, stage_run=due.stage_run_id)


def _settle_waiting(claim: StageClaim, waiting: DependencyUnavailable) -> None:
    """Give an attempt back until its dependency may be called again (guarantee G15)."""
    with_reconnect(lambda: pipeline.wait(claim, waiting))
    if not waiting.dependency and not waiting.seconds:
        log.info("stage_gives_way", job=claim.job_id, stage=claim.stage.value)
        return
    log.warning(
        "stage_waits",
        job=claim.job_id,
        stage=claim.stage.value,
        dependency=waiting.dependency,
        seconds=round(waiting.seconds, 1),
    )


def _settle_failure(claim: StageClaim, failure: Failure, stack: str) -> None:
    delay = with_reconnect(lambda: pipeline.fail(claim, failure, stack))
    if failure.error_class is ErrorClass.INTERNAL_BUG:
        log.error("internal_bug", job=claim.job_id, stage=claim.stage.value, stack=stack, **failure.facts)
    log.warning(
        "stage_failed" if delay is not None else "job_dead_lettered",
        job=claim.job_id,
        stage=claim.stage.value,
        attempt=claim.attempt,
        retry_in_seconds=delay,
        **failure.facts,
    )
