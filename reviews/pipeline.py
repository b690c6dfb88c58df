"""The only writer of job, stage and attempt states: claim, record, fail, give back, end.

Each transition is one guarded statement whose row count is checked; a worker that lost its
lease matches no row and changes nothing (fencing by `lease_token`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import connection, transaction
from psycopg.types.json import Jsonb

from criticizer import outbox, sql
from criticizer.failures import ErrorClass, Failure, Place, kind_of
from criticizer.redaction import clean, clean_context
from criticizer.retry import BACKOFF
from deadletters import workflow
from notifications import sending
from reviews.models import StageRun
from reviews.states import ACTIVE_JOB, STAGE_ORDER, Stage

log = structlog.get_logger(__name__)

AGGREGATE = "stage_run"
MESSAGE = "run_stage"
_ACTIVE = "(" + ", ".join(f"'{status.value}'" for status in ACTIVE_JOB) + ")"


class LostLease(Exception):
    """Another worker owns the stage, or its job has ended: the result is dropped."""


@dataclass(frozen=True, slots=True)
class StageClaim:
    """The right to work on one stage once. `attempt` counts from 1 within its budget."""

    outbox_id: int
    token: UUID
    stage_run_id: int
    stage: Stage
    attempt: int
    max_attempts: int
    attempt_id: int
    job_id: int
    changelist_id: str
    review_version: int


@dataclass(frozen=True, slots=True)
class Due:
    """A leased piece of work that has not been claimed yet."""

    outbox_id: int
    stage_run_id: int
    token: UUID


def queue_of(stage: str) -> str:
    """Return the queue whose workers run `stage` (settings.STAGES)."""
    stages: Mapping[str, tuple[str, str]] = settings.STAGES
    return stages[stage][1]


# -- claim ------------------------------------------------------------------------------------

_CLAIM = f"""
WITH leased AS (
  UPDATE outbox_messages SET started_at = now(), available_at = now() + make_interval(secs => %(lease)s)
   WHERE id = %(outbox)s AND lease_token = %(token)s RETURNING id),
run AS (
  UPDATE stage_runs s
     SET status = 'running', attempts = s.attempts + 1, lease_token = %(token)s,
         lease_expires_at = now() + make_interval(secs => %(lease)s), next_attempt_at = NULL,
         started_at = coalesce(s.started_at, now())
    FROM leased, jobs j
   WHERE s.id = %(stage_run)s AND j.id = s.job_id AND j.status IN {_ACTIVE}
     AND s.attempts < s.max_attempts
     AND (s.status IN ('pending', 'retry_wait') OR (s.status = 'running' AND s.lease_expires_at <= now()))
  RETURNING s.id, s.job_id, s.stage, s.attempts, s.max_attempts, j.status AS job_status,
            j.changelist_id, j.review_version),
lost AS (
  UPDATE attempts SET outcome = 'lost', finished_at = now(), error_class = 'WORKER_LOST'
    FROM run WHERE attempts.stage_run_id = run.id AND attempts.outcome = 'started'),
begun AS (
  INSERT INTO attempts (stage_run_id, number, worker)
  SELECT id, attempts, %(worker)s FROM run RETURNING id),
job AS (
  UPDATE jobs SET status = 'in_progress' FROM run
   WHERE jobs.id = run.job_id AND run.job_status <> 'in_progress')
SELECT run.id AS stage_run_id, run.job_id, run.stage, run.attempts AS attempt, run.max_attempts,
       begun.id AS attempt_id, run.changelist_id, run.review_version
  FROM run, begun"""  # noqa: S608  the only interpolation is the state list above


def claim(due: Due, worker: str) -> StageClaim | None:
    """Begin an attempt: count it, lease the stage, write the attempt as started.

    Returns None when the work is not ours to do: leased by another, ended, already done, or
    out of budget (then the job is dead-lettered as `WORKER_LOST`).
    """
    found = sql.row(
        _CLAIM,
        {
            "outbox": due.outbox_id,
            "stage_run": due.stage_run_id,
            "token": due.token,
            "lease": outbox.scaled(outbox.LEASE_SECONDS),
            "worker": worker,
        },
    )
    if found is None:
        _refused(due)
        return None
    found["stage"] = Stage(found["stage"])
    return StageClaim(outbox_id=due.outbox_id, token=due.token, **found)


def _refused(due: Due) -> None:
    """Settle a message that could not be claimed, so that it does not come back for ever."""
    with transaction.atomic():
        held = sql.row(
            f"""
            SELECT s.id, s.stage, s.status, s.attempts, s.max_attempts, s.lease_expires_at > now() AS leased,
                   s.first_failure_at, s.job_id, j.status IN {_ACTIVE} AS active
              FROM outbox_messages o JOIN stage_runs s ON s.id = o.aggregate_id JOIN jobs j ON j.id = s.job_id
             WHERE o.id = %(outbox)s AND o.lease_token = %(token)s FOR UPDATE OF s, j""",  # noqa: S608
            {"outbox": due.outbox_id, "token": due.token},
        )
        log.info("claim_refused", stage_run=due.stage_run_id, reason=held["status"] if held else "not_leased")
        if held is None:
            return
        if not held["active"] or held["status"] in {"succeeded", "failed", "cancelled"}:
            sql.rows("DELETE FROM outbox_messages WHERE id = %(outbox)s", {"outbox": due.outbox_id})
        elif held["attempts"] >= held["max_attempts"] and not held["leased"]:
            _bury_lost(due, held)


def _bury_lost(due: Due, held: Mapping[str, object]) -> None:
    """Dead-letter a stage whose every attempt lost its worker."""
    sql.rows(
        """
        WITH run AS (
          UPDATE stage_runs SET status = 'failed', lease_token = NULL, lease_expires_at = NULL,
                 finished_at = now(), error_class = 'WORKER_LOST', last_failure_at = now(),
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
        Place.INTERNAL,
        "every attempt ended with its worker; look for out-of-memory kills",
        context={"attempts": held["attempts"]},
    )
    # The job is dead-lettered and the letter exists, or neither.
    workflow.open_letter(_letter(int(str(held["job_id"])), Stage(str(held["stage"])), failure, stack=""))


# -- record -----------------------------------------------------------------------------------

_RECORD = """
WITH run AS (
  UPDATE stage_runs SET status = 'succeeded', lease_token = NULL, lease_expires_at = NULL,
         finished_at = now(), error_class = '', progress = '{}'
   WHERE id = %(stage_run)s AND lease_token = %(token)s AND status = 'running' RETURNING job_id),
attempt AS (
  UPDATE attempts SET outcome = 'succeeded', finished_at = now() FROM run WHERE attempts.id = %(attempt)s),
gone AS (DELETE FROM outbox_messages USING run WHERE outbox_messages.id = %(outbox)s),
due AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, lease_token, available_at)
  SELECT 'stage_run', n.id, 'run_stage', %(next_queue)s, %(inline)s::uuid,
         now() + make_interval(secs => CASE WHEN %(inline)s::uuid IS NULL THEN 0 ELSE %(lease)s END)
    FROM run JOIN stage_runs n ON n.job_id = run.job_id AND n.stage = %(next_stage)s
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO NOTHING
  RETURNING id, aggregate_id),
woken AS (SELECT pg_notify(%(channel)s, '') FROM due WHERE %(inline)s::uuid IS NULL)
SELECT run.job_id, due.id AS outbox_id, due.aggregate_id AS stage_run_id, (SELECT count(*) FROM woken)
  FROM run LEFT JOIN due ON true"""

# Succeeded only when every recipient's delivery row has notified_at (004, 6.5).
_SUCCEED = """
UPDATE jobs SET status = 'succeeded', finished_at = now(), status_reason = ''
 WHERE id = %(job)s AND status = 'in_progress'
   AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.job_id = %(job)s AND d.notified_at IS NULL)
RETURNING EXISTS (SELECT 1 FROM dead_letters l WHERE l.job_id = %(job)s AND l.status = 'replaying') AS replayed"""


def record(claim: StageClaim, write: Callable[[], None] | None = None, *, inline: bool = False) -> Due | None:
    """End a stage with success: its result, the next stage's message, its own message gone.

    `write` stores the stage's result inside the same commit. With `inline`, a next stage on
    the same queue is returned already leased to the caller instead of being announced; a
    crash simply lets that lease run out.

    Raises LostLease, having changed nothing.
    """
    position = STAGE_ORDER.index(claim.stage)
    next_stage = STAGE_ORDER[position + 1] if position + 1 < len(STAGE_ORDER) else None
    next_queue = queue_of(next_stage) if next_stage else ""
    goes_inline = inline and next_stage is not None and next_queue == queue_of(claim.stage)
    parameters = {
        "stage_run": claim.stage_run_id,
        "token": claim.token,
        "attempt": claim.attempt_id,
        "outbox": claim.outbox_id,
        "next_stage": next_stage.value if next_stage else "",
        "next_queue": next_queue,
        "channel": outbox.channel(next_queue),
        "inline": uuid4() if goes_inline else None,
        "lease": outbox.scaled(outbox.LEASE_SECONDS),
    }
    if write is None and next_stage is not None:
        found = sql.row(_RECORD, parameters)  # one statement is one commit
        if found is None:
            raise LostLease
    else:
        with transaction.atomic():
            found = sql.row(_RECORD, parameters)
            if found is None:
                raise LostLease
            if write is not None:
                write()
            if next_stage is None:
                _succeed(claim)
    if goes_inline and found["outbox_id"] is not None:
        return Due(found["outbox_id"], found["stage_run_id"], parameters["inline"])
    return None


def _succeed(claim: StageClaim) -> None:
    done = sql.row(_SUCCEED, {"job": claim.job_id})
    if done is None:
        raise AssertionError("the last stage ended while a delivery is not marked as sent")
    if done["replayed"]:
        workflow.resolve_replayed(claim.job_id)
    log.info("job_succeeded", job=claim.job_id, changelist=claim.changelist_id, version=claim.review_version)


# -- fail -------------------------------------------------------------------------------------

_RETRY = """
WITH run AS (
  UPDATE stage_runs SET status = 'retry_wait', lease_token = NULL, lease_expires_at = NULL,
         next_attempt_at = now() + make_interval(secs => %(delay)s), error_class = %(error_class)s,
         first_failure_at = coalesce(first_failure_at, now()), last_failure_at = now()
   WHERE id = %(stage_run)s AND lease_token = %(token)s AND status = 'running' RETURNING job_id),
attempt AS (
  UPDATE attempts SET outcome = 'failed', finished_at = now(), error_class = %(error_class)s, code = %(code)s,
         detail = %(detail)s, context = %(context)s, retry_delay_seconds = %(delay)s
    FROM run WHERE attempts.id = %(attempt)s),
job AS (
  UPDATE jobs SET status = 'retryable_failed', status_reason = %(error_class)s FROM run WHERE jobs.id = run.job_id),
again AS (
  UPDATE outbox_messages SET available_at = now() + make_interval(secs => %(delay)s), lease_token = NULL,
         started_at = NULL, retry_count = retry_count + 1, error_message = %(error_class)s
    FROM run WHERE outbox_messages.id = %(outbox)s)
SELECT run.job_id, pg_notify(%(channel)s, '') FROM run"""

_BURY = """
WITH run AS (
  UPDATE stage_runs SET status = 'failed', lease_token = NULL, lease_expires_at = NULL, finished_at = now(),
         error_class = %(error_class)s, first_failure_at = coalesce(first_failure_at, now()),
         last_failure_at = now()
   WHERE id = %(stage_run)s AND lease_token = %(token)s AND status = 'running' RETURNING job_id),
attempt AS (
  UPDATE attempts SET outcome = 'failed', finished_at = now(), error_class = %(error_class)s, code = %(code)s,
         detail = %(detail)s, context = %(context)s
    FROM run WHERE attempts.id = %(attempt)s),
job AS (
  UPDATE jobs SET status = 'dead_lettered', finished_at = now(), status_reason = %(error_class)s
    FROM run WHERE jobs.id = run.job_id),
gone AS (DELETE FROM outbox_messages USING run WHERE outbox_messages.id = %(outbox)s)
SELECT run.job_id FROM run"""


def fail(claim: StageClaim, failure: Failure, stack: str) -> float | None:
    """End an attempt with a failure: due again after the backoff, or dead-lettered.

    `stack` is already redacted. Returns the seconds until the next attempt, or None when the
    job is dead-lettered (specification 000, 8.1 to 8.4). Raises LostLease, having changed
    nothing.
    """
    kind = failure.kind
    parameters = {
        "stage_run": claim.stage_run_id,
        "token": claim.token,
        "attempt": claim.attempt_id,
        "outbox": claim.outbox_id,
        "error_class": str(failure.error_class),
        "code": kind.code,
        "detail": clean(failure.detail, 1000),
        "context": Jsonb(clean_context(failure.context)),
    }
    if failure.retryable and claim.attempt < claim.max_attempts:
        delay = outbox.scaled(BACKOFF.delay(claim.attempt, failure.retry_after_seconds))
        channel = outbox.channel(queue_of(claim.stage))
        if sql.row(_RETRY, {**parameters, "delay": delay, "channel": channel}) is None:
            raise LostLease
        return delay
    with transaction.atomic():
        if sql.row(_BURY, parameters) is None:
            raise LostLease
        # The job is dead-lettered and the letter exists, or neither.
        workflow.open_letter(_letter(claim.job_id, claim.stage, failure, stack))
    return None


def _letter(job_id: int, stage: Stage, failure: Failure, stack: str) -> workflow.LetterDraft:
    kind = kind_of(failure.error_class, failure.place)
    facts = sql.row(
        """
        SELECT j.changelist_id, j.review_version, s.attempts, s.max_attempts, s.first_failure_at, s.last_failure_at,
               (SELECT a.name FROM artifacts a WHERE a.job_id = j.id AND a.kind = 'change'
                 ORDER BY a.id DESC LIMIT 1) AS artifact
          FROM jobs j JOIN stage_runs s ON s.job_id = j.id WHERE j.id = %(job)s AND s.stage = %(stage)s""",
        {"job": job_id, "stage": stage.value},
    )
    assert facts is not None
    return workflow.LetterDraft(
        job_id=job_id,
        stage=stage.value,
        error_class=str(failure.error_class),
        code=kind.code,
        severity=kind.severity.value,
        retryable=failure.retryable,
        detail=clean(failure.detail, 1000),
        last_stack=stack,
        sanitized_context=clean_context(
            {
                **failure.context,
                "job": job_id,
                "stage": stage.value,
                "attempts": facts["attempts"],
                "max_attempts": facts["max_attempts"],
                "changelist_id": facts["changelist_id"],
                "review_version": facts["review_version"],
            }
        ),
        payload_reference=facts["artifact"] or f"changelist {facts['changelist_id']}",
        attempts=facts["attempts"],
        first_failure_at=facts["first_failure_at"],
        last_failure_at=facts["last_failure_at"],
    )


def progress_of(claim: StageClaim) -> dict[str, str]:
    """Return the finished parts an earlier attempt at this stage left behind."""
    kept: dict[str, str] = StageRun.objects.values_list("progress", flat=True).get(pk=claim.stage_run_id)
    return kept


def keep_progress(claim: StageClaim, progress: Mapping[str, object]) -> None:
    """Remember finished parts of a stage while it runs. Does nothing without the lease."""
    sql.rows(
        "UPDATE stage_runs SET progress = %(progress)s WHERE id = %(run)s AND lease_token = %(token)s",
        {"progress": Jsonb(dict(progress)), "run": claim.stage_run_id, "token": claim.token},
    )


def give_back(claim: StageClaim) -> None:
    """Undo the claim at a clean shutdown: the attempt does not count."""
    sql.rows(
        """
        WITH run AS (
          UPDATE stage_runs SET status = 'pending', attempts = attempts - 1, lease_token = NULL,
                 lease_expires_at = NULL
           WHERE id = %(run)s AND lease_token = %(token)s AND status = 'running' RETURNING id),
        attempt AS (
          UPDATE attempts SET outcome = 'given_back', finished_at = now() FROM run
           WHERE attempts.id = %(attempt)s)
        UPDATE outbox_messages SET available_at = now(), lease_token = NULL, started_at = NULL FROM run
         WHERE outbox_messages.id = %(outbox)s""",
        {
            "run": claim.stage_run_id,
            "token": claim.token,
            "attempt": claim.attempt_id,
            "outbox": claim.outbox_id,
        },
    )


def still_ours(claim: StageClaim) -> bool:
    """Say whether the lease holds and the job is still wanted; asked before every send."""
    return bool(
        sql.value(
            f"""
            SELECT true FROM stage_runs s JOIN jobs j ON j.id = s.job_id
             WHERE s.id = %(run)s AND s.lease_token = %(token)s AND j.status IN {_ACTIVE}""",  # noqa: S608
            {"run": claim.stage_run_id, "token": claim.token},
        )
    )


# -- end from outside -------------------------------------------------------------------------

_END = f"""
WITH job AS (
  UPDATE jobs SET status = %(status)s, finished_at = now(), status_reason = %(reason)s
   WHERE id = ANY(%(jobs)s) AND status IN {_ACTIVE} RETURNING id),
runs AS (
  UPDATE stage_runs s SET status = 'cancelled', lease_token = NULL, lease_expires_at = NULL, finished_at = now(),
         next_attempt_at = NULL
    FROM job WHERE s.job_id = job.id AND s.status IN ('pending', 'running', 'retry_wait') RETURNING s.id),
gone AS (
  DELETE FROM outbox_messages o USING runs WHERE o.aggregate_type = 'stage_run' AND o.aggregate_id = runs.id)
SELECT id FROM job"""  # noqa: S608


def cancel(job_id: int, actor: str, reason: str) -> bool:
    """Cancel a job that is still at work; its finished stages stay readable.

    No failure and no use of budget. Returns False when the job had ended already.
    """
    with transaction.atomic():
        text = clean(f"cancelled by {actor}: {reason}", 500)
        ended = sql.rows(_END, {"jobs": [job_id], "status": "cancelled", "reason": text})
        for row in ended:
            sending.cancel_unsent(row["id"])
    if ended:
        log.info("job_cancelled", job=job_id, actor=actor)
    return bool(ended)


def supersede(job_ids: list[int], by_version: int) -> None:
    """End older versions of a changelist: nothing further is sent for them. Inside a transaction."""
    assert connection.in_atomic_block
    reason = f"version {by_version} was requested"
    for row in sql.rows(_END, {"jobs": job_ids, "status": "superseded", "reason": reason}):
        sending.supersede_unsent(row["id"])
        log.info("job_superseded", job=row["id"], by_version=by_version)


# -- replay -----------------------------------------------------------------------------------


def replay(job_id: int, stage: Stage) -> bool:
    """Put a dead-lettered job back to work from `stage` with a fresh budget. Inside a transaction.

    Returns False when the job is not dead-lettered (any more), or when another version of its
    changelist is being worked on.
    """
    assert connection.in_atomic_block
    done = sql.row(
        f"""
        WITH job AS (
          UPDATE jobs SET status = 'queued', finished_at = NULL, status_reason = 'replay'
           WHERE id = %(job)s AND status = 'dead_lettered'
             AND NOT EXISTS (SELECT 1 FROM jobs n WHERE n.changelist_id = jobs.changelist_id
                                AND n.id <> jobs.id AND (n.status IN {_ACTIVE}
                                     OR n.review_version > jobs.review_version))
          RETURNING id)
        UPDATE stage_runs s
           SET status = 'pending', attempts = 0, lease_token = NULL, lease_expires_at = NULL, finished_at = NULL,
               next_attempt_at = NULL, first_failure_at = NULL, last_failure_at = NULL, error_class = ''
          FROM job WHERE s.job_id = job.id AND s.stage = ANY(%(stages)s)
        RETURNING s.id, s.stage""",  # noqa: S608
        {"job": job_id, "stages": [later.value for later in STAGE_ORDER[STAGE_ORDER.index(stage) :]]},
    )
    if done is None:
        return False
    first = sql.value(
        "SELECT id FROM stage_runs WHERE job_id = %(job)s AND stage = %(stage)s",
        {"job": job_id, "stage": stage.value},
    )
    sending.reset_failed(job_id)
    outbox.publish(AGGREGATE, first, MESSAGE, queue_of(stage))
    return True


# -- sweep ------------------------------------------------------------------------------------

_SWEEP = f"""
WITH current AS (
  SELECT DISTINCT ON (s.job_id) s.id, s.stage, s.status, s.next_attempt_at, s.lease_expires_at
    FROM stage_runs s JOIN jobs j ON j.id = s.job_id
   WHERE j.status IN {_ACTIVE} AND s.status IN ('pending', 'running', 'retry_wait')
   ORDER BY s.job_id, array_position(%(order)s::text[], s.stage::text)),
made AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, available_at)
  SELECT 'stage_run', c.id, 'run_stage', (%(queues)s::jsonb) ->> c.stage,
         greatest(now(), coalesce(c.next_attempt_at, c.lease_expires_at, now()))
    FROM current c
   WHERE NOT EXISTS (SELECT 1 FROM outbox_messages o WHERE o.aggregate_type = 'stage_run' AND o.aggregate_id = c.id)
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO NOTHING
  RETURNING queue)
SELECT queue, count(*) AS made, pg_notify('criticizer_' || queue, '') FROM made GROUP BY queue"""  # noqa: S608


def sweep() -> int:
    """Find everything due again from the rows alone; return how many messages were missing."""
    found = sql.rows(
        _SWEEP,
        {
            "order": [stage.value for stage in STAGE_ORDER],
            "queues": Jsonb({stage.value: queue_of(stage.value) for stage in STAGE_ORDER}),
        },
    )
    made = sum(int(row["made"]) for row in found)
    if made:
        log.warning("sweep_found_lost_work", messages=made)
    return made
