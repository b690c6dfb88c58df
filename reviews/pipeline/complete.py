"""Record the end of an attempt: its result, a retry, or a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from uuid import uuid4

import structlog
from django.db import transaction
from psycopg.types.json import Jsonb

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean, clean_context
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    RetryableFailure,
)
from criticizer.resilience.retry import BACKOFF
from deadletters import ingest
from reviews.pipeline import dead_letter
from reviews.pipeline.base import Due, LostLease, StageClaim, queue_of, soft_margin, statement
from reviews.pipeline.claim import wait
from reviews.states import STAGE_ORDER

log = structlog.get_logger(__name__)

_RECORD = """
WITH run AS (
  UPDATE stage_runs SET status = 'succeeded', lease_token = NULL, lease_expires_at = NULL,
         finished_at = now(), error_class = '', progress = '{}'
   WHERE id = %(stage_run)s AND lease_token = %(token)s AND status = 'running' RETURNING job_id),
attempt AS (
  UPDATE attempts SET outcome = 'succeeded', finished_at = now() FROM run WHERE attempts.id = %(attempt)s),
gone AS (DELETE FROM outbox_messages o USING run WHERE o.id = %(outbox)s RETURNING o.flow),
due AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, lease_token,
                               available_at)
  SELECT 'stage_run', n.id, 'run_stage', %(next_queue)s, coalesce((SELECT flow FROM gone), 'system'),
         %(inline)s::uuid,
         now() + make_interval(secs => CASE WHEN %(inline)s::uuid IS NULL THEN 0 ELSE %(lease)s END)
    FROM run JOIN stage_runs n ON n.job_id = run.job_id AND n.stage = %(next_stage)s
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO NOTHING
  RETURNING id, aggregate_id),
woken AS (SELECT pg_notify(%(channel)s, '') FROM due WHERE %(inline)s::uuid IS NULL)
SELECT run.job_id, due.id AS outbox_id, due.aggregate_id AS stage_run_id, (SELECT count(*) FROM woken)
  FROM run LEFT JOIN due ON true"""

_SUCCEED = statement("""
UPDATE jobs SET status = 'succeeded', finished_at = now(), status_reason = ''
 WHERE id = %(job)s AND status = 'in_progress'
   AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE $UNNOTIFIED)
RETURNING EXISTS (SELECT 1 FROM dead_letters l
                   WHERE l.job_id = %(job)s AND l.status = 'replaying') AS replayed""")

# The plain end of a job in one statement: nothing unsent, no dead letter to resolve. The job is locked
# before the stage, in the order of a cancellation. Without a row, the longer way is taken.
_FINISH = statement("""
WITH held AS (
  SELECT id FROM jobs WHERE id = %(job)s AND status = 'in_progress' FOR NO KEY UPDATE),
run AS (
  UPDATE stage_runs SET status = 'succeeded', lease_token = NULL, lease_expires_at = NULL,
         finished_at = now(), error_class = '', progress = '{}'
    FROM held
   WHERE stage_runs.id = %(stage_run)s AND stage_runs.job_id = held.id
     AND lease_token = %(token)s AND status = 'running'
     AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE $UNNOTIFIED)
     AND NOT EXISTS (SELECT 1 FROM dead_letters l WHERE l.job_id = %(job)s AND l.status = 'replaying')
  RETURNING stage_runs.job_id),
attempt AS (
  UPDATE attempts SET outcome = 'succeeded', finished_at = now() FROM run WHERE attempts.id = %(attempt)s),
gone AS (DELETE FROM outbox_messages USING run WHERE outbox_messages.id = %(outbox)s),
job AS (
  UPDATE jobs SET status = 'succeeded', finished_at = now(), status_reason = ''
    FROM run WHERE jobs.id = run.job_id)
SELECT job_id FROM run""")


def record(claim: StageClaim, write: Callable[[], None] | None = None, *, inline: bool = False) -> Due | None:
    """End a stage with success: its result, the next stage's message, its own message gone.

    `write` stores the stage's result inside the same commit. With `inline`, a next stage on
    the same queue is returned already leased to the caller instead of being announced; a
    crash simply lets that lease run out.

    Raises LostLease, and RetryableFailure DATABASE_UNAVAILABLE where a delivery of the job is not marked as
    sent, having changed nothing.
    """
    position = STAGE_ORDER.index(claim.stage)
    next_stage = STAGE_ORDER[position + 1] if position + 1 < len(STAGE_ORDER) else None
    if next_stage is None and _finish(claim, write):
        return None
    next_queue = queue_of(next_stage) if next_stage else ""
    goes_inline = inline and next_stage is not None and next_queue == queue_of(claim.stage)
    inline_token = uuid4() if goes_inline else None
    parameters = {
        **claim.rows,
        "next_stage": next_stage.value if next_stage else "",
        "next_queue": next_queue,
        "channel": outbox.channel(next_queue),
        "inline": inline_token,
        "lease": outbox.scaled(outbox.LEASE_SECONDS),
    }
    is_one_statement = write is None and next_stage is not None
    with nullcontext() if is_one_statement else transaction.atomic():
        found = prepared.row(_RECORD, parameters)
        if found is None:
            raise LostLease
        if write is not None:
            write()
        if next_stage is None:
            _succeed(claim)
    if inline_token is not None and found["outbox_id"] is not None:
        return Due(found["outbox_id"], found["stage_run_id"], inline_token)
    return None


def _finish(claim: StageClaim, write: Callable[[], None] | None) -> bool:
    """End stage and job together and store the stage's result, if nothing else is to be done."""
    with transaction.atomic() if write is not None else nullcontext():
        if prepared.row(_FINISH, {**claim.rows, "job": claim.job_id}) is None:
            return False
        if write is not None:
            write()
    _log_success(claim)
    return True


def _succeed(claim: StageClaim) -> None:
    done = prepared.row(_SUCCEED, {"job": claim.job_id})
    if done is None:
        # A standby that was promoted since the stage read its deliveries may lack what it did to them.
        detail = "the last stage ended while a delivery is not marked as sent"
        raise RetryableFailure(ErrorClass.DATABASE_UNAVAILABLE, Component.DATABASE, detail)
    if done["replayed"]:
        ingest.await_verification(claim.job_id)
    _log_success(claim)


def _log_success(claim: StageClaim) -> None:
    log.info("job_succeeded", job=claim.job_id, changelist=claim.changelist_id, version=claim.review_version)


_RETRY = statement("""
WITH run AS (
  UPDATE stage_runs s SET status = 'retry_wait', lease_token = NULL, lease_expires_at = NULL,
         next_attempt_at = $BEFORE_DEADLINE, error_class = %(error_class)s,
         first_failure_at = coalesce(first_failure_at, now()), last_failure_at = now()
    FROM jobs j
   WHERE s.id = %(stage_run)s AND lease_token = %(token)s AND s.status = 'running' AND j.id = s.job_id
  RETURNING s.job_id, s.next_attempt_at),
attempt AS (
  UPDATE attempts SET outcome = 'failed', finished_at = now(), error_class = %(error_class)s, code = %(code)s,
         detail = %(detail)s, context = %(context)s, retry_delay_seconds = %(delay)s
    FROM run WHERE attempts.id = %(attempt)s),
job AS (
  UPDATE jobs SET status = 'retryable_failed', status_reason = %(error_class)s
    FROM run WHERE jobs.id = run.job_id),
again AS (
  UPDATE outbox_messages
     SET available_at = run.next_attempt_at, lease_token = NULL,
         started_at = NULL, retry_count = retry_count + 1, error_message = %(error_class)s
    FROM run WHERE outbox_messages.id = %(outbox)s)
SELECT run.job_id, pg_notify(%(channel)s, '') FROM run""")

_BURY = """
WITH run AS (
  UPDATE stage_runs SET status = 'failed', lease_token = NULL, lease_expires_at = NULL, finished_at = now(),
         progress = '{}',
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
    job is dead-lettered (guarantees G14, G29). The loss of the database uses no last attempt: it is given
    back, until the deadline of the job (guarantee G15). Raises LostLease, having changed nothing.
    """
    kind = failure.kind
    is_last = claim.attempt >= claim.max_attempts
    parameters = {
        **claim.rows,
        "error_class": str(failure.error_class),
        "code": kind.code,
        "detail": clean(failure.detail, 1000),
        "context": Jsonb(clean_context(failure.context)),
    }
    delay = outbox.scaled(BACKOFF.delay(claim.attempt, failure.retry_after_seconds))
    if is_last and failure.error_class is ErrorClass.DATABASE_UNAVAILABLE:
        wait(claim, DependencyUnavailable("", delay, failure.detail))
        return delay
    if failure.retryable and not is_last:
        channel = outbox.channel(queue_of(claim.stage))
        parameters |= {"delay": delay, "channel": channel, "soft_margin": soft_margin()}
        if prepared.row(_RETRY, parameters) is None:
            raise LostLease
        return delay
    with transaction.atomic():
        if prepared.row(_BURY, parameters) is None:
            raise LostLease
        dead_letter.open_letter(claim.job_id, claim.stage, failure, stack)
    return None
