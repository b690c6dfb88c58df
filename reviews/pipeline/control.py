"""Control from outside the workers: cancel, supersede, replay."""

from __future__ import annotations

import structlog
from django.db import connection, transaction

from criticizer import outbox, sql
from criticizer.redaction import clean
from deadletters import workflow
from notifications import sending
from reviews.pipeline.base import ACTIVE, AGGREGATE, MESSAGE, queue_of
from reviews.states import STAGE_ORDER, Stage

log = structlog.get_logger(__name__)

_END = f"""
WITH job AS (
  UPDATE jobs SET status = %(status)s, finished_at = now(), status_reason = %(reason)s
   WHERE id = ANY(%(jobs)s) AND status IN {ACTIVE} RETURNING id),
runs AS (
  UPDATE stage_runs s
     SET status = 'cancelled', lease_token = NULL, lease_expires_at = NULL, finished_at = now(),
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
            workflow.abandon_replayed(row["id"], text)
    if ended:
        log.info("job_cancelled", job=job_id, actor=actor)
    return bool(ended)


def supersede(job_ids: list[int], by_version: int) -> None:
    """End older versions of a changelist: nothing further is sent for them. Inside a transaction."""
    assert connection.in_atomic_block
    reason = f"version {by_version} was requested"
    for row in sql.rows(_END, {"jobs": job_ids, "status": "superseded", "reason": reason}):
        sending.supersede_unsent(row["id"])
        workflow.abandon_replayed(row["id"], reason)
        log.info("job_superseded", job=row["id"], by_version=by_version)


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
                                AND n.id <> jobs.id AND (n.status IN {ACTIVE}
                                     OR n.review_version > jobs.review_version))
          RETURNING id)
        UPDATE stage_runs s
           SET status = 'pending', attempts = 0, lease_token = NULL, lease_expires_at = NULL,
               finished_at = NULL, next_attempt_at = NULL, first_failure_at = NULL,
               last_failure_at = NULL, error_class = ''
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
