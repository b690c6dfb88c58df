"""Begin an attempt, give it back, or settle one that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import structlog
from django.db import transaction

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import Component, DependencyUnavailable, ErrorClass, Failure, kind_of
from reviews.models import StageRun
from reviews.pipeline import dead_letter
from reviews.pipeline.base import Due, LostLease, StageClaim, queue_of, soft_margin, statement
from reviews.pipeline.terminate import expire
from reviews.states import UNFINISHED_STAGE, Stage

log = structlog.get_logger(__name__)

# The first two losses of a worker that many stages share are given back: one of them may have killed it,
# and from then on each runs alone (`async_executor`), so that later losses are its own (guarantee G141).
_CLAIM = statement("""
WITH before AS (
  SELECT (%(shared)s AND s.status = 'running' AND 2 > (
           SELECT count(*) FROM attempts a WHERE $LOST_WORKER
         ))::int AS given_back
    FROM stage_runs s WHERE s.id = %(stage_run)s),
leased AS (
  UPDATE outbox_messages SET started_at = now(), available_at = now() + make_interval(secs => %(lease)s)
   WHERE id = %(outbox)s AND lease_token = %(token)s AND waiting_for = ''
  RETURNING id, flow),
run AS (
  UPDATE stage_runs s
     SET status = 'running', attempts = s.attempts + 1 - before.given_back, lease_token = %(token)s,
         lease_expires_at = now() + make_interval(secs => %(lease)s), next_attempt_at = NULL,
         started_at = coalesce(s.started_at, now())
    FROM leased, before, jobs j
   WHERE s.id = %(stage_run)s AND j.id = s.job_id AND j.status IN $ACTIVE AND j.deadline_at > now()
     AND s.attempts - before.given_back < s.max_attempts
     AND (s.status IN $WAITING OR (s.status = 'running' AND s.lease_expires_at <= now()))
  RETURNING s.id, s.job_id, s.stage, s.attempts, s.max_attempts, j.status AS job_status,
            j.changelist_id, j.review_version, s.progress <> '{}' AS has_progress, leased.flow,
            extract(epoch FROM $SOFT_DEADLINE - now())::float8 AS soft_deadline_in),
lost AS (
  UPDATE attempts SET outcome = CASE before.given_back WHEN 1 THEN 'given_back' ELSE 'lost' END,
         finished_at = now(), error_class = 'WORKER_LOST'
    FROM run, before WHERE attempts.stage_run_id = run.id AND attempts.outcome = 'started'
  RETURNING attempts.worker),
begun AS (
  INSERT INTO attempts (stage_run_id, number, worker)
  SELECT id, attempts, %(worker)s FROM run RETURNING id),
job AS (
  UPDATE jobs SET status = 'in_progress' FROM run
   WHERE jobs.id = run.job_id AND run.job_status <> 'in_progress')
SELECT run.id AS stage_run_id, run.job_id, run.stage, run.attempts AS attempt, run.max_attempts,
       begun.id AS attempt_id, run.changelist_id, run.review_version, run.has_progress, run.flow,
       run.soft_deadline_in,
       (SELECT worker FROM lost LIMIT 1) AS lost_worker
  FROM run, begun""")


def claim(due: Due, worker: str, *, shared: bool = False) -> StageClaim | None:
    """Begin an attempt: count it, lease the stage, write the attempt as started.

    `shared`: the worker runs many stages at once, so that one of them may cost others their attempt.

    Returns None when the work is leased by another, ended, already done, past its deadline (then the job
    is timed out), waiting for a dependency that is unavailable, or out of budget (then the job is
    dead-lettered as `WORKER_LOST`).
    """
    found = _begin(due, worker, shared)
    if found is None and _may_continue(due):
        found = _begin(due, worker, shared)
    if found is None:
        _refused(due)
        return None
    found["stage"] = Stage(found["stage"])
    if (lost := found.pop("lost_worker")) is not None:
        log.warning(
            "worker_lost",
            job=found["job_id"],
            stage=found["stage"].value,
            attempt=found["attempt"],
            worker=lost,
            **kind_of(ErrorClass.WORKER_LOST, Component.QUEUE).facts,
        )
    return StageClaim(outbox_id=due.outbox_id, token=due.token, **found)


def _begin(due: Due, worker: str, shared: bool) -> dict[str, Any] | None:
    return prepared.row(
        _CLAIM,
        {
            "outbox": due.outbox_id,
            "stage_run": due.stage_run_id,
            "token": due.token,
            "lease": outbox.scaled(outbox.LEASE_SECONDS),
            "worker": worker,
            "shared": shared,
            "soft_margin": soft_margin(),
        },
    )


def _may_continue(due: Due) -> bool:
    """Return whether a message that waited for a dependency may continue; postpone it when not.

    No attempt is written: a long outage must not fill the history.
    """
    leased = {"outbox": due.outbox_id, "token": due.token, "stage_run": due.stage_run_id}
    awaited = prepared.row(_AWAITED, {**leased, "soft_margin": soft_margin()})
    if not awaited or not awaited["waiting_for"]:
        return False
    outbox.note_flow(awaited["flow"])
    try:
        if not awaited["continues"]:
            gate.check(awaited["waiting_for"])
    except DependencyUnavailable as waiting:
        prepared.rows(_POSTPONE, {**leased, "delay": waiting.seconds, "soft_margin": soft_margin()})
        return False
    prepared.rows(
        "UPDATE outbox_messages SET waiting_for = '' WHERE id = %(outbox)s AND lease_token = %(token)s",
        leased,
    )
    return True


# Not for a job past its deadline: it is ended instead. What has no circuit, as a slot of receivers, is tried.
_AWAITED = statement("""
SELECT o.waiting_for, o.flow,
       $HAS_ANSWERS AND $SOFT_DEADLINE <= now()
       OR NOT EXISTS (SELECT FROM circuits c WHERE c.name = o.waiting_for) AS continues
  FROM outbox_messages o, stage_runs s JOIN jobs j ON j.id = s.job_id
 WHERE o.id = %(outbox)s AND o.lease_token = %(token)s AND s.id = %(stage_run)s AND j.deadline_at > now()""")

_POSTPONE = statement("""
WITH message AS (
  UPDATE outbox_messages o
     SET available_at = $BEFORE_DEADLINE, lease_token = NULL, started_at = NULL
    FROM stage_runs s JOIN jobs j ON j.id = s.job_id
   WHERE o.id = %(outbox)s AND o.lease_token = %(token)s AND s.id = %(stage_run)s RETURNING o.available_at)
UPDATE stage_runs SET next_attempt_at = message.available_at FROM message
 WHERE stage_runs.id = %(stage_run)s AND stage_runs.status IN $WAITING""")


def _refused(due: Due) -> None:
    """Settle a message that could not be claimed, so that it is not delivered for ever."""
    with transaction.atomic():
        held = prepared.row(
            statement("""
            SELECT s.id, s.stage, s.status, s.attempts, s.max_attempts, s.lease_expires_at > now() AS leased,
                   s.first_failure_at, s.job_id, j.status IN $ACTIVE AS active,
                   j.deadline_at <= now() AS overdue
              FROM outbox_messages o JOIN stage_runs s ON s.id = o.aggregate_id JOIN jobs j ON j.id = s.job_id
             WHERE o.id = %(outbox)s AND o.lease_token = %(token)s FOR UPDATE OF s, j"""),
            {"outbox": due.outbox_id, "token": due.token},
        )
        log.info("claim_refused", stage_run=due.stage_run_id, reason=held["status"] if held else "not_leased")
        if held is None:
            return
        if not held["active"] or held["status"] not in UNFINISHED_STAGE:
            prepared.rows("DELETE FROM outbox_messages WHERE id = %(outbox)s", {"outbox": due.outbox_id})
        elif held["overdue"]:
            expire([held["job_id"]])
        elif held["attempts"] >= held["max_attempts"] and not held["leased"]:
            _dead_letter_lost(due, held)


def _dead_letter_lost(due: Due, held: Mapping[str, Any]) -> None:
    """Dead-letter a stage of which every attempt lost its worker."""
    prepared.rows(
        """
        WITH run AS (
          UPDATE stage_runs SET status = 'failed', lease_token = NULL, lease_expires_at = NULL,
                 finished_at = now(), error_class = 'WORKER_LOST', last_failure_at = now(), progress = '{}',
                 first_failure_at = coalesce(first_failure_at, started_at, now())
           WHERE id = %(run)s),
        lost AS (UPDATE attempts SET outcome = 'lost', finished_at = now(), error_class = 'WORKER_LOST'
                  WHERE stage_run_id = %(run)s AND outcome = 'started'),
        gone AS (DELETE FROM outbox_messages WHERE id = %(outbox)s)
        UPDATE jobs SET status = 'dead_lettered', finished_at = now(), status_reason = 'WORKER_LOST'
         WHERE id = %(job)s""",
        {"run": held["id"], "outbox": due.outbox_id, "job": held["job_id"]},
    )
    failure = Failure(
        ErrorClass.WORKER_LOST,
        Component.INTERNAL,
        "every attempt ended with its worker; look for out-of-memory kills",
        context={"attempts": held["attempts"]},
    )
    dead_letter.open_letter(held["job_id"], Stage(held["stage"]), failure)


def progress_of(claim: StageClaim) -> dict[str, str]:
    """Return the finished parts that an earlier attempt at this stage left behind."""
    if not claim.has_progress:
        return {}
    runs = StageRun.objects.filter(pk=claim.stage_run_id)
    progress = dict(runs.values_list("progress", flat=True).first() or {})
    progress.pop(StageRun.PARTS, None)
    return progress


def keep_progress(claim: StageClaim, progress: Mapping[str, object], parts: tuple[int, int] = (0, 0)) -> None:
    """Save the finished parts of a running stage. Does nothing without the lease.

    `parts`: how many of how many are finished, for the page of the review.
    """
    counted = {StageRun.PARTS: list(parts)} if progress and parts[1] > 1 else {}
    run = StageRun.objects.filter(pk=claim.stage_run_id, lease_token=claim.token)
    run.update(progress={**progress, **counted})


def give_back(claim: StageClaim) -> None:
    """Undo the claim at a clean shutdown: the attempt does not count (guarantee G15)."""
    prepared.rows(
        """
        WITH run AS (
          UPDATE stage_runs SET status = 'pending', attempts = attempts - 1, lease_token = NULL,
                 lease_expires_at = NULL
           WHERE id = %(stage_run)s AND lease_token = %(token)s AND status = 'running' RETURNING id),
        attempt AS (
          UPDATE attempts SET outcome = 'given_back', finished_at = now() FROM run
           WHERE attempts.id = %(attempt)s)
        UPDATE outbox_messages SET available_at = now(), lease_token = NULL, started_at = NULL FROM run
         WHERE outbox_messages.id = %(outbox)s""",
        claim.rows,
    )


_WAIT = statement("""
WITH run AS (
  UPDATE stage_runs s SET status = 'pending', attempts = attempts - 1, lease_token = NULL,
         lease_expires_at = NULL, next_attempt_at = $BEFORE_DEADLINE
    FROM jobs j
   WHERE s.id = %(stage_run)s AND lease_token = %(token)s AND s.status = 'running' AND j.id = s.job_id
  RETURNING s.id, s.next_attempt_at),
attempt AS (
  UPDATE attempts SET outcome = 'given_back', finished_at = now(), detail = %(detail)s FROM run
   WHERE attempts.id = %(attempt)s),
again AS (
  UPDATE outbox_messages
     SET available_at = run.next_attempt_at, lease_token = NULL,
         started_at = NULL, waiting_for = %(dependency)s
    FROM run WHERE outbox_messages.id = %(outbox)s)
SELECT run.id, pg_notify(%(channel)s, '') FROM run""")


def wait(claim: StageClaim, waiting: DependencyUnavailable) -> None:
    """Undo the claim until its dependency may be called again: the attempt does not count.

    `outbox.wake` makes it due earlier. Raises LostLease, having changed nothing.
    """
    with transaction.atomic() if waiting.write is not None else nullcontext():
        if waiting.write is not None:
            waiting.write()
        parameters = {
            **claim.rows,
            "delay": waiting.seconds,
            "soft_margin": soft_margin(),
            "dependency": waiting.dependency,
            "detail": clean(_waiting_reason(waiting), 1000),
            "channel": outbox.channel(queue_of(claim.stage)),
        }
        if prepared.row(_WAIT, parameters) is None:
            raise LostLease


def _waiting_reason(waiting: DependencyUnavailable) -> str:
    """Return why a stage waits; without a dependency the reason is complete."""
    return f"waiting for {waiting.dependency}: {waiting.reason}" if waiting.dependency else waiting.reason


def still_ours(claim: StageClaim) -> bool:
    """Return whether the lease holds, the job is active and its deadline has not passed.

    Checked before every send and between the calls of a review. A job past its deadline is timed out.
    """
    found = prepared.row(
        statement("""
        SELECT j.deadline_at <= now() AS overdue FROM stage_runs s JOIN jobs j ON j.id = s.job_id
         WHERE s.id = %(stage_run)s AND s.lease_token = %(token)s AND j.status IN $ACTIVE"""),
        claim.rows,
    )
    if found is None:
        return False
    if found["overdue"]:
        expire([claim.job_id])
        return False
    return True
